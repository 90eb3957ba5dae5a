"""Slot pools on TensorRT contexts: their tokens beside the CPU's, and what a decode step takes.

Engines are those of `python -m build tensorrt think_step asr_decode_step prosody_step`; where one
is missing, or TensorRT is, the reason is told in its place.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.repositories import read_models
from loadtest.stages.ceilings import timed_s
from loadtest.stages.flow_graphs import REPOSITORY
from python_backends.slot_engine.command import GREEDY, Command, Decode, Prefill, Result, Tokens
from python_backends.slot_engine.engine import SlotPoolEngine
from python_backends.slot_engine.opening import open_engine
from python_backends.slot_engine.settings import TENSORRT, EngineSettings
from python_backends.tensorrt.device import Device, Work, both
from python_backends.tensorrt.errors import EngineUnfit

MODELS = ("think_step", "asr_decode_step", "prosody_step")
PROMPT, STEPS = 12, 40
AGREE = 0.95
"""Of the tokens: fp16 may decide near ties otherwise, and noise has more of them than speech."""

MS = 1e3
CONTEXT: Mapping[str, Mapping[str, NDArray[Any]]] = {
    "asr_decode_step": {
        "HIDDEN": np.random.default_rng(0).standard_normal((200, 384), dtype=np.float32)
    },
    "prosody_step": {"PHONEMES": np.arange(3, 43), "VOICE": np.zeros(1, np.int64)},
}


class Uncaptured(Device):
    """Every step is put on the stream anew, as without CUDA graphs."""

    def captured(self, prepare: Work, work: Work) -> Work:
        """See Device."""
        return both(prepare, work)


def parity(device: str, repository: Path = REPOSITORY) -> dict[str, Any]:
    """By model: the share of tokens that are the CPU's, or why that was not tried."""
    return {model: _tried(_agreement, model, device, repository) for model in MODELS}


def wrong(found: Mapping[str, Any]) -> list[str]:
    """Models whose tokens are too often other ones."""
    return [model for model, agree in found.items() if isinstance(agree, float) and agree < AGREE]


def bench(device: str, repository: Path = REPOSITORY) -> dict[str, Any]:
    """By model: ms of a decode step for each number of rows, as a CUDA graph and without."""
    return {model: _tried(_times, model, device, repository) for model in MODELS}


def _tried(work: Callable[[str, str, Path], Any], model: str, device: str, repository: Path) -> Any:
    if not (repository / model / "1" / "portable.onnx").exists():
        return f"run: python -m build export --portable {model}"
    try:
        return work(model, device, repository)
    except EngineUnfit as fault:
        return str(fault)


def _opened(
    model: str, device: str, repository: Path, make: Callable[[str], Device] = Device
) -> SlotPoolEngine:
    found = read_models([REPOSITORY], {})[model].parameters
    slots, capacity = int(found["slots"]), int(found["capacity"])
    settings = EngineSettings(slots, capacity, runtime=TENSORRT, device=device)
    return open_engine(repository / model / "1", settings, device=make)


def _agreement(model: str, device: str, repository: Path) -> float:
    """Both are given the CPU's tokens, so that one that differs does not make others differ."""
    gpu, folder = _opened(model, device, repository), repository / model / "1"
    cpu = SlotPoolEngine(folder, slots=gpu.slots, capacity=gpu.capacity, graph="portable.onnx")
    last, _ = (np.concatenate(_filled(engine, model)) for engine in (cpu, gpu))
    same = []
    for number in range(STEPS):
        expected, found = (_step(engine, last, number) for engine in (cpu, gpu))
        same.append((expected == found).mean())
        last = expected
    return float(np.mean(same))


def _times(model: str, device: str, repository: Path) -> dict[str, dict[str, float]]:
    made = {"graph": Device, "no_graph": Uncaptured}
    return {
        how: _step_times(_opened(model, device, repository, make), model)
        for how, make in made.items()
    }


def _step_times(engine: SlotPoolEngine, model: str) -> dict[str, float]:
    """ms by number of rows; a step comes with its command, its copies and its wait."""
    last = np.concatenate(_filled(engine, model))
    steps = {n: partial(_step, engine, last[:n], 0) for n in range(1, engine.slots + 1)}
    return {str(n): median(timed_s(step, 0.3)) * MS for n, step in steps.items()}


def _filled(engine: SlotPoolEngine, model: str) -> list[Tokens]:
    """Every row with a prompt of its own; the first token of each."""
    draw = np.random.default_rng(0)
    firsts = []
    for row in range(engine.slots):
        count = 1 if engine.width > 1 else PROMPT
        shape = (count, engine.width) if engine.width > 1 else count
        tokens = np.zeros(shape, np.int64) if engine.width > 1 else draw.integers(5, 900, shape)
        part = Prefill(row, 0, tokens, True, GREEDY, CONTEXT.get(model, {}))
        result: Result = engine.run(Command(0, prefill=part))
        assert result.prefill is not None
        firsts.append(result.prefill.tokens)
    return firsts


def _step(engine: SlotPoolEngine, last: Tokens, number: int) -> Tokens:
    start = (1 if engine.width > 1 else PROMPT) + number
    tokens = last if engine.width > 1 else last[:, 0]
    step = Decode(tokens, np.full(len(last), start, np.int64), (GREEDY,) * len(last))
    result = engine.run(Command(0, decode=step))
    assert result.decode is not None
    return result.decode.tokens
