"""What models declare follows from their graphs, and what loops may take fits what is declared."""

import json
import re
from functools import cache
from typing import Any

import onnx
import pytest

from python_backends.declared import PARAMETERS, Declared
from python_backends.encoder_window.windows import LONG_FRAMES, SHORT_FRAMES
from python_backends.sizes import RowBytes
from tests.repository.configs import (
    ROOT,
    folders,
    models,
    of_backend,
    parameters,
    parse,
)

FLOAT_BYTES = 4
ROOMY = 1.25
"""A declared activation beyond the batches that are let in is not this much larger."""


def declared(name: str) -> Declared:
    found = Declared.of(parameters(name))
    assert found is not None, f"{name} declares nothing"
    return found


def number(name: str, key: str) -> int:
    return int(parameters(name)[key])


def step_of(name: str) -> str:
    return parameters(name)["step_model"] if name in of_backend("ar_loop") else name


@cache
def shapes(name: str) -> dict[str, list[Any]]:
    """Inputs of a step graph: heads, length and width of each pool, behind the rows."""
    graph = onnx.load(ROOT / "model_repository" / name / "1" / "model.onnx").graph
    return {
        one.name: [dim.dim_value or None for dim in one.type.tensor_type.shape.dim]
        for one in graph.input
    }


@pytest.mark.parametrize("name", models())
def test_every_model_declares_its_process_and_its_region(name: str) -> None:
    found = declared(name)
    assert found.process > 0
    assert found.shm > 0
    computes = step_of(name) if name in of_backend("ar_loop") else name
    graphs = list((ROOT / "model_repository" / computes / "1").glob("model.onnx"))
    assert bool(found.weights) == bool(graphs)


@pytest.mark.parametrize("name", of_backend("encoder_window", "ar_loop", "diffusion_lock"))
def test_every_stage_with_a_queue_bounds_what_open_requests_take(name: str) -> None:
    assert declared(name).requests > 0


def test_other_configs_declare_the_same_parts() -> None:
    for name in models():
        for path in (folders()[name] / "configs").glob("*.pbtxt"):
            given = {key for key in parse(path).parameters if key in PARAMETERS}
            assert given == {key for key in parameters(name) if key in PARAMETERS}, path


@pytest.mark.parametrize("name", of_backend("slot_engine"))
def test_a_token_of_kv_takes_what_the_graph_says(name: str) -> None:
    """Layers times heads times width, for K and for V, as float32."""
    pools = {key: dims for key, dims in shapes(name).items() if re.fullmatch("[kv][0-9]+", key)}
    assert pools
    token = sum(heads * width * FLOAT_BYTES for _, heads, _, width in pools.values())
    assert number(name, "bytes_kv_token") == token


@pytest.mark.parametrize("name", of_backend("slot_engine"))
def test_a_row_takes_the_context_that_the_graph_is_given(name: str) -> None:
    """Of every width that there is a set for: a row may be in several of them."""
    folder = ROOT / "model_repository" / name / "1"
    admit, row = folder / "admit.onnx", 0
    if admit.exists():
        named = [one.name for one in onnx.load(admit).graph.output]
        dims = [shapes(name)[key] for key in named]
        rules = folder / "generation.json"
        widths = json.loads(rules.read_text()).get("context_widths", []) if rules.exists() else []
        for _, *outer, length, width in dims:
            size = FLOAT_BYTES * width
            for one in outer:
                size *= one
            row += size * (length or sum(widths))
    assert int(parameters(name).get("bytes_kv_row", "0")) == row


@pytest.mark.parametrize("name", of_backend("ar_loop"))
def test_a_loop_declares_the_cache_of_its_engine(name: str) -> None:
    for key in ("bytes_weights", "bytes_kv_token", "bytes_kv_row", "bytes_activation"):
        assert parameters(name).get(key) == parameters(step_of(name)).get(key), key


def test_the_largest_pass_of_the_encoder_is_let_in_and_fits_what_is_declared() -> None:
    law = RowBytes.read(parameters("encode")["row_bytes"])
    assert [length for length, _ in law.measured] == [SHORT_FRAMES, LONG_FRAMES]
    largest = law(LONG_FRAMES) * number("encode", "max_batch")
    assert largest == number("encode", "max_batch_bytes")
    room = declared("asr_encoder").activation + declared("encode").activation
    assert largest <= room <= ROOMY * largest


def test_the_largest_batch_of_pieces_is_let_in_and_fits_what_is_declared() -> None:
    law = RowBytes.read(parameters("acoustic")["row_bytes"])
    assert law.measured[-1][0] == number("acoustic", "max_frames")
    largest = law(number("acoustic", "max_frames")) * number("acoustic", "max_batch")
    assert largest == number("acoustic", "max_batch_bytes")
    computed_in = ("acoustic", "acoustic_condition", "acoustic_step")
    room = sum(declared(name).activation for name in computed_in)
    assert largest <= room <= ROOMY * largest
