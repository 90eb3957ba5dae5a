"""Every config.pbtxt says what the design says, and nothing by accident."""

import importlib
import re
import subprocess
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from python_backends import speech
from python_backends.bridge import ModelConfig
from python_backends.declared import PARAMETERS
from tests.repository.configs import (
    NATIVE_BACKENDS,
    REPOSITORIES,
    ROOT,
    configs,
    ensembles,
    folders,
    kind,
    models,
    of_backend,
    own,
    parameters,
    parse,
)


@dataclass(frozen=True)
class Row:
    """How a model's requests are batched, and whether it answers more than once."""

    batching: str
    decoupled: bool = False
    ordered: bool = False


DYNAMIC = Row("dynamic")
OWN = Row("own")

TABLE = {
    "asr_encoder": DYNAMIC,
    "acoustic_condition": DYNAMIC,
    "acoustic_step": DYNAMIC,
    "vocoder": Row("dynamic", ordered=True),
    "vad": Row("sequence"),
    "vad_step": DYNAMIC,
    "listen": Row("sequence", decoupled=True),
    "live": Row("own", decoupled=True),
    "encode": OWN,
    "asr_decode": OWN,
    "prosody": OWN,
    "think": Row("own", decoupled=True),
    "acoustic": Row("own", decoupled=True),
    "turn": Row("own", decoupled=True),
    "think_step": OWN,
    "asr_decode_step": OWN,
    "prosody_step": OWN,
}
"""The design's table. A new model needs a row, chosen on purpose."""

NATIVE_PARAMETERS = {"intra_op_thread_count", "inter_op_thread_count"}


def in_git() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", *REPOSITORIES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split())


def test_every_model_has_chosen_its_scheduler() -> None:
    assert set(models()) == set(TABLE)


@pytest.mark.parametrize("name", folders())
def test_a_config_bears_the_name_of_its_folder(name: str) -> None:
    assert configs()[name].name == name


@pytest.mark.parametrize("name", folders())
def test_a_fresh_clone_has_the_config_and_an_empty_version_folder(name: str) -> None:
    """Without a version folder Triton finds no version of the model."""
    folder = folders()[name].relative_to(ROOT)
    assert {f"{folder}/config.pbtxt", f"{folder}/1/.gitkeep"} <= in_git()


def test_artefacts_are_not_in_git() -> None:
    assert not [path for path in in_git() if "/1/" in path and not path.endswith(".gitkeep")]


def test_a_name_is_used_once_over_both_repositories() -> None:
    """Triton takes neither of two models of one name."""
    names = [path.name for room in REPOSITORIES for path in (ROOT / room).iterdir()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", models())
def test_other_configs_of_a_model_keep_its_tensors(name: str) -> None:
    """configs/*.pbtxt may change the backend and its knobs, never the contract."""
    ours = configs()[name]
    for path in (folders()[name] / "configs").glob("*.pbtxt"):
        other = parse(path)
        assert other.name == name
        assert list(map(str, other.input)) == list(map(str, ours.input)), path
        assert list(map(str, other.output)) == list(map(str, ours.output)), path
        assert other.model_transaction_policy == ours.model_transaction_policy, path


@pytest.mark.parametrize("name", models())
def test_a_model_is_batched_as_the_table_says(name: str) -> None:
    config, row = configs()[name], TABLE[name]
    batching = config.WhichOneof("scheduling_choice")
    expected = {"dynamic": "dynamic_batching", "sequence": "sequence_batching", "own": None}
    assert batching == expected[row.batching]
    assert config.model_transaction_policy.decoupled == row.decoupled
    assert config.dynamic_batching.preserve_ordering == row.ordered


@pytest.mark.parametrize("name", models())
def test_instances_are_explicit(name: str) -> None:
    """The defaults differ between backends: onnxruntime would take two on a CPU."""
    groups = configs()[name].instance_group
    assert groups
    assert all(group.count >= 1 and group.kind for group in groups)


@pytest.mark.parametrize("name", own())
def test_an_own_queue_is_the_only_one(name: str) -> None:
    """Public case F12."""
    config = configs()[name]
    assert [group.count for group in config.instance_group] == [1]
    assert config.max_batch_size == 1


@pytest.mark.parametrize("name", of_backend(*NATIVE_BACKENDS))
def test_native_models_batch_and_make_nobody_wait_for_it(name: str) -> None:
    """Public case E10."""
    config, row = configs()[name], TABLE[name]
    assert row.batching != "own"
    assert config.max_batch_size > 1
    assert set(parameters(name)) - set(PARAMETERS) == NATIVE_PARAMETERS
    assert config.default_model_filename == "model.onnx"
    oldest = config.sequence_batching.oldest
    batching = oldest if row.batching == "sequence" else config.dynamic_batching
    assert batching.max_queue_delay_microseconds == 0
    assert batching.preferred_batch_size
    assert max(batching.preferred_batch_size) <= config.max_batch_size


@pytest.mark.parametrize("name", models())
def test_no_feature_that_stalls_or_surprises_is_used(name: str) -> None:
    """Public cases D3, E1, E8 and F11.

    Queue policies and priorities stall 500 ms; the rest would hide compute or change shapes.
    """
    config = configs()[name]
    dynamic = config.dynamic_batching
    assert not dynamic.HasField("default_queue_policy")
    assert not dynamic.priority_levels
    assert not dynamic.priority_queue_policy
    for field in ("response_cache", "optimization", "version_policy", "model_operations"):
        assert not config.HasField(field), field
    for repeated in ("model_warmup", "batch_input", "batch_output"):
        assert not getattr(config, repeated), repeated
    assert not config.HasField("model_metrics"), "refused by Triton 2.51"
    assert not config.sequence_batching.iterative_sequence
    assert not any(tensor.allow_ragged_batch for tensor in config.input)
    assert not any(tensor.is_shape_tensor for tensor in [*config.input, *config.output])


@pytest.mark.parametrize("name", folders())
def test_every_tensor_has_a_batch_dimension_and_a_name_of_its_own(name: str) -> None:
    """Public case D10: there is no scalar."""
    config = configs()[name]
    assert config.max_batch_size >= 1
    for tensors in (config.input, config.output):
        names = [tensor.name for tensor in tensors]
        assert len(names) == len(set(names))
        for tensor in tensors:
            assert re.fullmatch("[A-Z][A-Z0-9_]*", tensor.name)
            assert tensor.dims, f"{tensor.name} has no dimension beside the batch"
            assert kind(tensor)[0] != "TYPE_INVALID"


def test_implicit_state_starts_as_zeros_of_its_own_shape() -> None:
    states = configs()["vad"].sequence_batching.state
    assert {state.input_name for state in states} == {"STATE_IN", "CONTEXT_IN"}
    for state in states:
        [initial] = state.initial_state
        assert kind(initial) == kind(state)
        assert initial.zero_data


@pytest.mark.parametrize("name", own())
def test_an_own_backend_exists_and_accepts_the_parameters(name: str) -> None:
    folder = folders()[name]
    for path in [folder / "config.pbtxt", *(folder / "configs").glob("*.pbtxt")]:
        config = parse(path)
        assert config.parameters, "a backend without parameters needs no settings"
        assert (ROOT / "python_backends" / config.backend / "model.py").is_file()
        settings = settings_of(config.backend)
        given = {key: value.string_value for key, value in config.parameters.items()}
        described = ModelConfig(name, Path(), "1", given, ())
        assert isinstance(described.settings(settings), settings)


def settings_of(backend: str) -> type[Any]:
    """What its parameters are read as."""
    module = importlib.import_module(f"python_backends.{backend}.settings")
    [settings] = [
        found
        for key, found in vars(module).items()
        if is_dataclass(found) and key.endswith("Settings") and found.__module__ == module.__name__
    ]
    assert isinstance(settings, type)
    return settings


@pytest.mark.parametrize("name", models())
def test_every_model_that_a_parameter_names_exists(name: str) -> None:
    """Public case F14: no stage calls a model with state, whose sequence it would have to name."""
    for key, value in parameters(name).items():
        if key.endswith("_model") or key == "ensemble":
            assert value in folders(), key
            assert not configs()[value].HasField("sequence_batching"), key


@pytest.mark.parametrize("name", of_backend("ar_loop"))
def test_a_loop_and_its_engine_agree_on_the_pool(name: str) -> None:
    loop = parameters(name)
    engine = parameters(loop["step_model"])
    assert configs()[loop["step_model"]].backend == "slot_engine"
    for key in ("slots", "capacity"):
        assert loop[key] == engine[key], key
    assert int(loop["max_new_tokens"]) <= int(loop["capacity"])


def test_engines_differ_only_in_the_context_they_take() -> None:
    context = {
        "asr_decode_step": {"HIDDEN"},
        "prosody_step": {"PHONEMES", "VOICE"},
        "think_step": set(),
    }
    common = None
    for name in of_backend("slot_engine"):
        config = configs()[name]
        inputs = {one.name: (kind(one), one.optional) for one in config.input}
        assert context[name] <= inputs.keys()
        assert [key for key, (_, optional) in inputs.items() if not optional] == ["COMMAND"]
        rest = {key: value for key, value in inputs.items() if key not in context[name]}
        found = (rest, {one.name: kind(one) for one in config.output})
        common = common or found
        assert found == common


@pytest.mark.parametrize("name", [one for one in own() if one not in of_backend("slot_engine")])
def test_a_stage_can_be_told_to_cancel(name: str) -> None:
    """A control request brings CONTROL alone, so no other input may be required."""
    inputs = {tensor.name: tensor for tensor in configs()[name].input}
    assert kind(inputs["CONTROL"]) == ("TYPE_STRING", (1,))
    assert all(tensor.optional for tensor in inputs.values())


def test_a_cancelled_turn_reaches_every_stage_with_a_queue() -> None:
    [turn] = of_backend("front_door")
    steps = configs()[parameters(turn)["ensemble"]].ensemble_scheduling.step
    queues = [step.model_name for step in steps if step.model_name in own()]
    assert parameters(turn)["stages"].split(",") == queues


def test_the_front_door_offers_what_the_ensemble_offers() -> None:
    turn = configs()["turn"]
    ensemble = configs()[parameters("turn")["ensemble"]]
    assert {one.name: kind(one) for one in turn.output} == {
        one.name: kind(one) for one in ensemble.output
    }
    own = ("CONTROL", "HEARD")
    inputs = {one.name: kind(one) for one in turn.input if one.name not in own}
    assert inputs == {one.name: kind(one) for one in ensemble.input}


def test_speech_has_one_form_in_configs_and_code() -> None:
    def dims(model: str, tensor: str) -> tuple[int, ...]:
        config = configs()[model]
        return next(kind(one)[1] for one in [*config.input, *config.output] if one.name == tensor)

    for model in ("acoustic", "vocoder"):
        assert dims(model, "LATENT") == (-1, speech.LATENT)
        assert dims(model, "NOISE") == (-1, speech.NOISE)
    assert dims("acoustic_step", "X") == dims("acoustic_step", "VELOCITY") == (-1, speech.CHANNELS)
    assert dims("acoustic_step", "CONDITION") == dims("acoustic_condition", "CONDITION")
    assert dims("asr_encoder", "HIDDEN")[-1] == dims("encode", "HIDDEN")[-1]
    assert dims("asr_decode", "HIDDEN") == dims("encode", "HIDDEN")


def test_ensembles_are_pure_wiring() -> None:
    assert {folders()[name].parent.name for name in ensembles()} == {"ensemble"}
    assert {folders()[name].parent.name for name in models()} == {"model_repository"}
    for name in ensembles():
        config = configs()[name]
        assert not config.backend
        assert not config.instance_group
        assert not config.parameters
        assert not config.HasField("model_transaction_policy")


def test_ci_runs_what_people_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make check test" in script.read_text().splitlines()
    targets = (ROOT / "Makefile").read_text()
    for target in ("check", "test", "run", "serve", "build", "clean"):
        assert re.search(rf"^{target}:", targets, re.MULTILINE), target
