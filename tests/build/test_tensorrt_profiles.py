"""Profiles follow from the configs, and what disagrees with them is refused."""

import ast
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from build.errors import EngineRefused
from build.tensorrt import profiles, recipes
from build.tensorrt.profiles import Bounds, Range

ROOT = Path(__file__).parents[2]
SERVED = [recipe.model for recipe in recipes.RECIPES.values() if not recipe.steps]


def config(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


SOUND = config(
    'name: "sound" max_batch_size: 8 '
    'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 66 ] } ] '
    "dynamic_batching { preferred_batch_size: [ 4, 8 ] }"
)


def bounds(least: int, most: int, width: int = 66) -> Bounds:
    return Bounds((least, 1, width), (4, 160, width), (most, 1600, width))


def test_open_dimensions_take_their_ranges_and_fixed_ones_stay() -> None:
    lengths = {"B": profiles.batch_range(SOUND), "T": Range(1, 160, 1600)}
    found = profiles.profile({"X": ("B", "T", 66)}, lengths)
    assert found == {"X": bounds(1, 8)}
    profiles.check(SOUND, found)


def test_without_preferred_sizes_the_largest_batch_is_the_usual_one() -> None:
    assert profiles.batch_range(config("max_batch_size: 8")) == Range(1, 8, 8)


def test_a_dimension_nothing_is_known_of_is_refused() -> None:
    with pytest.raises(EngineRefused, match=r"X: no range is known for its dimension 'N'.*B"):
        profiles.profile({"X": ("B", "N")}, {"B": Range.only(1)})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"X": bounds(1, 4)}, "X takes 1 to 4 rows, config.pbtxt says 1 to 8"),
        ({"X": bounds(2, 8)}, "X takes 2 to 8 rows"),
        ({"X": bounds(1, 8, 64)}, r"X is \[-1, 66\] in config.pbtxt"),
        ({"X": Bounds((1, 66), (4, 66), (8, 66))}, r"X is \[-1, 66\]"),
        ({}, "X has no bounds"),
    ],
)
def test_a_profile_that_disagrees_with_the_config_is_refused(found: Any, said: str) -> None:
    with pytest.raises(EngineRefused, match=said) as refused:
        profiles.check(SOUND, found)
    assert "python -m build tensorrt sound" in str(refused.value)


@pytest.mark.parametrize("least", [0, 5])
def test_a_range_rises(least: int) -> None:
    with pytest.raises(ValueError, match="least <= usual"):
        Range(least, 4, 8)


@pytest.mark.parametrize("model", SERVED)
def test_served_models_have_one_profile_that_fits_their_config(model: str) -> None:
    recipe = recipes.RECIPES[model]
    [found] = recipe.profiles(recipes.open_inputs(recipe.graph_path))
    assert all(one.least[0] == 1 for one in found.values())


def test_ranges_are_those_of_the_stages_in_front() -> None:
    def most(model: str, name: str) -> tuple[int, ...]:
        recipe = recipes.RECIPES[model]
        [found] = recipe.profiles(recipes.open_inputs(recipe.graph_path))
        return found[name].most

    assert most("asr_encoder", "MEL") == (8, 80, 3000)
    assert most("acoustic_step", "X") == (16, 1600, 66)
    assert most("acoustic_condition", "PHONEME") == (8, 512)
    assert most("vocoder", "F0") == (8, 1610)


@pytest.mark.parametrize(
    ("model", "rows", "chunk", "pool"),
    [
        ("asr_decode_step", 8, 16, (8, 6, 448, 64)),
        ("prosody_step", 16, 16, (16, 4, 512, 48)),
    ],
)
def test_a_step_engine_has_a_profile_to_decode_and_one_to_prefill(
    model: str, rows: int, chunk: int, pool: tuple[int, ...]
) -> None:
    recipe = recipes.RECIPES[model]
    decode, prefill = recipe.profiles(recipes.open_inputs(recipe.graph_path))
    assert decode["ids"].least[:2] == (1, 1)
    assert decode["ids"].most[:2] == (rows, 1)
    assert prefill["ids"].usual[:2] == (1, chunk)
    assert decode["k0"].most == pool


def test_the_windows_of_the_vad_are_those_that_the_listener_sends() -> None:
    source = ROOT / "python_backends/listening/vad.py"
    tree = ast.parse(source.read_text())
    [value] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MOST_WINDOWS"
    ]
    assert ast.literal_eval(value) == recipes.MOST_WINDOWS


def test_engines_are_chosen_by_name_or_all_that_are_served() -> None:
    assert [one.model for one in recipes.chosen([])] == SERVED
    assert [one.model for one in recipes.chosen(["think_step"])] == ["think_step"]
    with pytest.raises(EngineRefused, match=r"\['turn'\]; known are .*asr_encoder"):
        recipes.chosen(["turn"])
