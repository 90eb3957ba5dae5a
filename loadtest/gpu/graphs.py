"""The portable graphs, at their smallest, an odd and their largest size, and how they are run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from deploy.repositories import read_models
from loadtest.gpu.machine import CPU, Machine
from loadtest.stages.bound_graphs import mel, score, velocity, vocoder_chunk
from loadtest.stages.flow_graphs import REPOSITORY
from loadtest.stages.flow_pieces import TICKS
from loadtest.stages.onnx_run import Feeds
from python_backends.diffusion_lock.chunks import CHUNK, FIRST_CHUNK
from python_backends.encoder_window.windows import FRAMES_PER_STATE, LONG_FRAMES, SHORT_FRAMES
from python_backends.speech import CONTEXT_FRAMES

AROUND = 2 * CONTEXT_FRAMES
STATES = SHORT_FRAMES // FRAMES_PER_STATE


@dataclass(frozen=True)
class Case:
    """A graph with inputs. `usual`: a size that turns have, which is worth timing."""

    name: str
    path: Path
    feeds: Feeds = field(compare=False)
    usual: bool = False

    @property
    def there(self) -> bool:
        """The LLM's portable graph is exported only when asked for."""
        return self.path.exists()


def cases() -> list[Case]:
    """All that there may be."""
    most = _number("acoustic", "max_frames")
    vocoder = {1 + AROUND: False, FIRST_CHUNK + AROUND: True, CHUNK + AROUND: True}
    found = [
        *_sized("asr_encoder", "portable.onnx", mel, {2: False, 1501: False, SHORT_FRAMES: True}),
        *_sized("asr_encoder", "portable.onnx", mel, {LONG_FRAMES: True}),
        *_sized("acoustic_condition", "model.onnx", score, {TICKS: False, 160: True}),
        *_sized("acoustic_step", "model.onnx", velocity, {1: False, 161: False, 160: True}),
        *_sized("acoustic_step", "model.onnx", velocity, {most: False}),
        *_sized("vocoder", "model.onnx", vocoder_chunk, vocoder | {most + AROUND: False}),
        *_sized("vad_step", "model.onnx", vad_windows, {1: False, 3: True, 4: False}),
    ]
    for model in ("asr_decode_step", "prosody_step", "think_step"):
        slots = _number(model, "slots")
        found += [
            _step(model, rows=1, tokens=1, start=0),
            _step(model, rows=1, tokens=1, start=32, usual=True),
            _step(model, rows=slots, tokens=1, start=32, usual=True),
            _step(model, rows=1, tokens=16, start=0, usual=True),
        ]
    return found


def vad_windows(windows: int) -> Feeds:
    """So many windows of 32 ms of two callers, of whom the second has one less where it may."""
    rng = np.random.default_rng(0)
    return {
        "AUDIO": 0.1 * rng.standard_normal((2, windows, 512), dtype=np.float32),
        "WINDOWS": np.array([[windows], [max(1, windows - 1)]], np.int64),
        "STATE_IN": np.zeros((2, 2, 128), np.float32),
        "CONTEXT_IN": np.zeros((2, 64), np.float32),
    }


def step_feeds(path: Path, rows: int, tokens: int, start: int) -> Feeds:
    """Inputs of a step graph whose pools hold `start` tokens a row, zeros beyond."""
    rng = np.random.default_rng(0)
    sizes = {"B": rows, "T": tokens, "C": STATES}
    found: dict[str, NDArray[Any]] = {}
    for value in onnx.load(str(path), load_external_data=False).graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in dims]
        if value.name == "start":
            found[value.name] = np.full(shape, start, np.int64)
        elif value.name == "clen":
            found[value.name] = np.full(shape, STATES, np.int64)
        elif value.name == "ids":
            found[value.name] = rng.integers(1, 32, shape)
        else:
            found[value.name] = rng.standard_normal(shape, dtype=np.float32)
            if _is_pool(value.name):
                found[value.name][:, :, start:] = 0
    return found


class Running:
    """A graph in a session of its own, inputs and outputs where it computes, pools in place."""

    def __init__(self, case: Case, machine: Machine, options: Mapping[str, Any]) -> None:
        providers = [(machine.provider, dict(options))]
        self.session = ort.InferenceSession(str(case.path), _quiet(), providers=providers)
        self.binding = self.session.io_binding()
        held = {
            name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value), machine.device, 0)
            for name, value in case.feeds.items()
        }
        for name, value in held.items():
            self.binding.bind_ortvalue_input(name, value)
        for output in self.session.get_outputs():
            pool = held.get(output.name.replace("o", "", 1)) if "o" in output.name[1:2] else None
            if pool is not None:
                self.binding.bind_ortvalue_output(output.name, pool)
            else:
                self.binding.bind_output(output.name, machine.device)

    def __call__(self) -> None:
        """Run it once, to its end."""
        self.session.run_with_iobinding(self.binding)
        self.binding.synchronize_outputs()


def answers(case: Case, provider: str, options: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """What the graph gives."""
    session = ort.InferenceSession(str(case.path), _quiet(), providers=[(provider, dict(options))])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(case.feeds)), strict=True))


def worst_error(case: Case, machine: Machine) -> float:
    """Of any output beside the CPU's: the largest difference over the largest value.

    Infinite where something is not finite, or where whole numbers differ.
    """
    truth, given = answers(case, CPU, {}), answers(case, machine.provider, machine.options)
    return max(_error(truth[name], given[name]) for name in truth)


def _error(truth: NDArray[Any], given: NDArray[Any]) -> float:
    if truth.shape != given.shape or not np.isfinite(given).all():
        return float("inf")
    if not np.issubdtype(truth.dtype, np.floating):
        return 0.0 if np.array_equal(truth, given) else float("inf")
    largest = max(float(np.abs(truth).max(initial=0.0)), 1e-6)
    return float(np.abs(truth - given).max(initial=0.0)) / largest


def _sized(model: str, file: str, feeds: Any, sizes: Mapping[int, bool]) -> list[Case]:
    path = REPOSITORY / model / "1" / file
    return [Case(f"{model}_{size}", path, feeds(size), usual) for size, usual in sizes.items()]


def _step(model: str, *, rows: int, tokens: int, start: int, usual: bool = False) -> Case:
    path = REPOSITORY / model / "1" / "portable.onnx"
    feeds = step_feeds(path, rows, tokens, start) if path.exists() else {}
    return Case(f"{model}_n{rows}_t{tokens}_c{start}", path, feeds, usual)


def _number(model: str, key: str) -> int:
    return int(read_models([REPOSITORY], {})[model].parameters[key])


def _is_pool(name: str) -> bool:
    return name[0] in "kv" and name[1:].isdigit()


def _quiet() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return options
