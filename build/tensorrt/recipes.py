"""Which engines there are: of which graph, in which precision, for which shapes."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from build.artifact import REPOSITORY
from build.contract import read_config
from build.errors import EngineRefused
from build.tensorrt import profiles
from build.tensorrt.profiles import OpenShape, Profile, Range
from python_backends.diffusion_lock.chunks import CHUNK
from python_backends.diffusion_lock.score import BUCKET_FRAMES
from python_backends.encoder_window.windows import LONG_FRAMES, SHORT_FRAMES
from python_backends.speech import CONTEXT_FRAMES

HALF, FULL = "fp16", "fp32"
USUAL_PHONEMES = 32
"""Of a piece: a clause of some six words."""

MOST_WINDOWS = 4
"""Of a caller in a pass of the VAD, as in `python_backends/listening/vad.py`, which only Triton can
import."""


@dataclass(frozen=True)
class Recipe:
    """One engine, as configs/tensorrt.pbtxt of its model serves it: by Triton's tensorrt backend,
    or, of `steps`, by our slot_engine."""

    model: str
    graph: str
    precision: str
    steps: bool = False

    @property
    def graph_path(self) -> Path:
        """The ONNX graph it is made of."""
        return REPOSITORY / self.model / "1" / self.graph

    @property
    def served_config(self) -> Path:
        """By which Triton serves the engine."""
        return REPOSITORY / self.model / "configs" / "tensorrt.pbtxt"

    def profiles(self, inputs: Mapping[str, OpenShape]) -> list[Profile]:
        """The optimization profiles; Triton's backend takes the first, a step engine has two:
        decode steps of all slots, and chunks of one row's prompt."""
        if self.steps:
            return _step_profiles(self.model, inputs)
        lengths = _lengths()[self.model] | {"B": profiles.batch_range(_config(self.model))}
        found = profiles.profile(inputs, lengths)
        profiles.check(read_config(self.served_config), found)
        return [found]


RECIPES = {
    recipe.model: recipe
    for recipe in (
        Recipe("asr_encoder", "portable.onnx", HALF),
        Recipe("acoustic_condition", "model.onnx", FULL),
        Recipe("acoustic_step", "model.onnx", HALF),
        # Its pulse train is the sine of a phase that grows beyond what fp16 resolves.
        Recipe("vocoder", "model.onnx", FULL),
        Recipe("vad_step", "model.onnx", FULL),
        Recipe("asr_decode_step", "portable.onnx", HALF, steps=True),
        Recipe("think_step", "portable.onnx", HALF, steps=True),
        Recipe("prosody_step", "portable.onnx", FULL, steps=True),
    )
}
"""By model."""


def chosen(models: Iterable[str]) -> list[Recipe]:
    """Recipes of these models; where none is named, of all that TensorRT 10.8 can build, which has
    no layers for KV pools and so no step engines.

    Raises EngineRefused for a model that has no engine.
    """
    names = list(models)
    if unknown := sorted(set(names) - RECIPES.keys()):
        raise EngineRefused(f"no engine is made of {unknown}; known are {sorted(RECIPES)}")
    return [
        recipe
        for recipe in RECIPES.values()
        if (recipe.model in names if names else not recipe.steps)
    ]


def open_inputs(path: Path) -> dict[str, OpenShape]:
    """Inputs of a graph; dimensions that vary by their names."""
    values = onnx.load(path, load_external_data=False).graph.input
    return {
        value.name: tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param
            for dim in value.type.tensor_type.shape.dim
        )
        for value in values
    }


def _lengths() -> dict[str, dict[str, Range]]:
    """Of served models: what is known of each named dimension beside the batch."""
    most = _number("acoustic", "max_frames")
    frames = Range(1, 2 * BUCKET_FRAMES, most)
    around = 2 * CONTEXT_FRAMES
    phonemes = Range(1, USUAL_PHONEMES, _number("prosody", "capacity"))
    return {
        "asr_encoder": {"T": Range(2, SHORT_FRAMES, LONG_FRAMES)},
        "acoustic_condition": {"P": phonemes, "T": frames},
        "acoustic_step": {"T": frames},
        "vocoder": {"F": Range(around + 1, around + CHUNK, around + most)},
        "vad_step": {"T": Range(1, MOST_WINDOWS, MOST_WINDOWS)},
    }


def _step_profiles(model: str, inputs: Mapping[str, OpenShape]) -> list[Profile]:
    """Decode: rows of one token each. Prefill: as a rule one row, up to the longest chunk."""
    loop = _loop_of(model)
    slots = _number(model, "slots")
    chunk = max(int(loop.get(key, "1")) for key in ("prefill_chunk", "lone_chunk", "join_tokens"))
    context = {"C": Range(1, LONG_FRAMES // 4, LONG_FRAMES // 2)}
    decode = {"B": Range(1, slots, slots), "T": Range.only(1)} | context
    prefill = {"B": Range(1, 1, slots), "T": Range(1, chunk, chunk)} | context
    return [profiles.profile(inputs, lengths) for lengths in (decode, prefill)]


def _loop_of(step: str) -> Mapping[str, str]:
    """Parameters of the stage that drives a step model."""
    [found] = [
        own
        for path in sorted(REPOSITORY.glob("*/config.pbtxt"))
        if (own := _parameters(path.parent.name)).get("step_model") == step
        and "prefill_chunk" in own
    ]
    return found


@functools.cache
def _config(model: str) -> Any:
    return read_config(REPOSITORY / model / "config.pbtxt")


def _parameters(model: str) -> Mapping[str, str]:
    return {key: value.string_value for key, value in _config(model).parameters.items()}


def _number(model: str, key: str) -> int:
    return int(_parameters(model)[key])
