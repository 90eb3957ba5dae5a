"""The graphs that compute, at the shapes that a turn has, and how each is run bare."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from deploy.repositories import read_models
from loadtest.stages.ceilings import timed_s
from loadtest.stages.flow_graphs import REPOSITORY
from loadtest.stages.flow_pieces import TICKS
from loadtest.stages.onnx_run import Feeds
from python_backends.diffusion_lock.chunks import CHUNK
from python_backends.encoder_window.windows import FRAMES_PER_STATE, SHORT_FRAMES
from python_backends.slot_engine.bound import BoundGraph, open_session
from python_backends.speech import CONTEXT_FRAMES

VOCODER_FRAMES = CHUNK + 2 * CONTEXT_FRAMES
SECONDS = 0.15
"""How long a graph is run in a round."""

Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A graph at given shapes."""

    name: str
    model: str
    feeds: Feeds
    run: Run = field(compare=False)
    starts: tuple[int, ...] = ()
    """Tokens in each row's KV cache."""

    @property
    def path(self) -> Path:
        """Of its graph."""
        return graph_path(self.model)

    def time_s(self) -> float:
        """Median of the runs of a round."""
        return median(timed_s(self.run, SECONDS))


def graph_path(model: str) -> Path:
    """The graph that a model runs."""
    return REPOSITORY / model / "1" / "model.onnx"


def cases() -> list[Case]:
    """All of them."""
    asr, think, prosody = map(steps_of, ("asr_decode_step", "think_step", "prosody_step"))
    return [
        *(_plain(f"asr_encoder_{frames}", "asr_encoder", mel(frames)) for frames in (1500, 3000)),
        *(asr.decode(f"asr_decode_step_n{rows}", rows, 16) for rows in (1, 8)),
        *(think.decode(f"think_step_n{rows}_c256", rows, 256) for rows in (1, 8)),
        think.prefill("think_step_prefill_64", 64),
        *(prosody.decode(f"prosody_step_n{rows}", rows, 32) for rows in (1, 8)),
        *(
            _plain(f"acoustic_condition_{frames}", "acoustic_condition", score(frames))
            for frames in (160, 320)
        ),
        *(
            _plain(f"acoustic_step_{frames}", "acoustic_step", velocity(frames))
            for frames in (160, 320)
        ),
        _plain(f"vocoder_{VOCODER_FRAMES}", "vocoder", vocoder_chunk(VOCODER_FRAMES)),
        _plain("vad", "vad", vad_window()),
    ]


class Steps:
    """A step graph in the product's own binding, every row filled."""

    def __init__(self, model: str) -> None:
        self.model = model
        folder = REPOSITORY / model / "1"
        parameters = read_models([REPOSITORY], {})[model].parameters
        self.slots, self.capacity = int(parameters["slots"]), int(parameters["capacity"])
        widths = generation(model).get("context_widths", [])
        self.graph = BoundGraph(
            folder / "model.onnx",
            slots=self.slots,
            capacity=self.capacity,
            threads=1,
            context=admitted(model),
            context_widths=widths,
        )
        self.states = SHORT_FRAMES // FRAMES_PER_STATE if widths else 0
        self._fill()

    def decode(self, name: str, rows: int, start: int) -> Case:
        """A step of rows 0..rows-1, each of which holds `start` tokens."""
        return Case(
            name,
            self.model,
            self.feeds(rows, 1, start),
            lambda: self.step(rows, start),
            (start,) * rows,
        )

    def prefill(self, name: str, tokens: int) -> Case:
        """The first `tokens` of a prompt."""
        feeds = self.feeds(1, tokens, 0)
        return Case(name, self.model, feeds, lambda: self.chunk(0, tokens), (0,))

    def step(self, rows: int, start: int) -> None:
        """Run it."""
        self.graph.starts[:rows] = start
        self.graph.execute(0, rows, 0)

    def chunk(self, start: int, tokens: int, *, draws: bool = True) -> None:
        """Run it on row 0."""
        self.graph.chunk_start[0] = start
        self.graph.execute(0, 1, tokens, draws=draws)

    def feeds(self, rows: int, tokens: int, start: int) -> dict[str, NDArray[Any]]:
        """What the graph is given, for who runs it without the binding."""
        known: dict[str, NDArray[Any]] = {
            "ids": np.zeros((rows, tokens), np.int64),
            "start": np.full(rows, start, np.int64),
            "clen": np.full(rows, self.states, np.int64),
            "draws": np.ones(1, np.bool_),
        }
        found: dict[str, NDArray[Any]] = {}
        for name, dims in _inputs(self.model).items():
            if name == "ids" and len(dims) == 3:
                found[name] = np.zeros((rows, tokens, int(dims[2])), np.int64)
            elif name in known:
                found[name] = known[name]
            else:
                sizes = {"C": self.states, "S": self.capacity}
                shape = [rows, *(sizes.get(str(dim), dim) for dim in dims[1:])]
                found[name] = np.zeros([int(dim) for dim in shape], np.float32)
        return found

    def _fill(self) -> None:
        """KV and context of every row with numbers of a usual size."""
        rng = np.random.default_rng(0)
        for pool in self.graph.pools.kv.values():
            pool[...] = rng.standard_normal(pool.shape[-2:], dtype=np.float32)
        shapes = _inputs(self.model)
        for row in range(self.slots if admitted(self.model) else 0):
            context = {
                name: rng.standard_normal(
                    [self.states if dim == "C" else int(dim) for dim in shapes[name][1:]],
                    dtype=np.float32,
                )
                for name in admitted(self.model)
            }
            self.graph.pools.context.fill(row, context)


@cache
def steps_of(model: str) -> Steps:
    """The one step graph of `model`, which stays open."""
    return Steps(model)


@cache
def admitted(model: str) -> tuple[str, ...]:
    """What its admit graph gives; nothing where it has none."""
    path = REPOSITORY / model / "1" / "admit.onnx"
    return tuple(node.name for node in open_session(path, 1).get_outputs()) if path.exists() else ()


def generation(model: str) -> dict[str, Any]:
    """Its generation.json."""
    path = REPOSITORY / model / "1" / "generation.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


@cache
def _inputs(model: str) -> dict[str, list[int | str]]:
    """Input -> dims, symbolic ones by name."""
    graph = onnx.load(str(graph_path(model)), load_external_data=False).graph
    return {
        one.name: [dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in graph.input
    }


def _plain(name: str, model: str, feeds: Mapping[str, NDArray[Any]]) -> Case:
    session = open_session(graph_path(model), 1)
    return Case(name, model, feeds, lambda: session.run(None, dict(feeds)))


def mel(frames: int) -> Feeds:
    """A log-mel."""
    return {"MEL": _normal(1, 80, frames)}


def score(frames: int) -> Feeds:
    """A piece of so many frames."""
    phonemes = frames // TICKS
    return {
        "PHONEME": np.ones((1, phonemes), np.int64),
        "PITCH": np.ones((1, phonemes), np.int64),
        "FRAME_PHONEME": np.arange(frames)[None] // TICKS,
        "FRAME_POSITION": np.abs(_normal(1, frames, 3)),
        "VOICE": np.zeros((1, 1), np.int64),
        "STRIDE": np.zeros((1, 1), np.int64),
    }


def velocity(frames: int) -> Feeds:
    """One evaluation of the flow."""
    return {
        "X": _normal(1, frames, 66),
        "TIME": np.full((1, 1), 0.5, np.float32),
        "CONDITION": _normal(1, frames, 128),
        "LENGTH": np.full((1, 1), frames, np.int64),
    }


def vocoder_chunk(frames: int) -> Feeds:
    """A voiced chunk, context included."""
    return {
        "LATENT": _normal(1, frames, 64),
        "F0": np.full((1, frames), 150, np.float32),
        "VOICED": np.ones((1, frames), np.float32),
        "PHASE": np.zeros((1, frames), np.float32),
        "NOISE": _normal(1, frames, 1202),
        "VOICE": np.zeros((1, 1), np.int64),
    }


def vad_window() -> Feeds:
    """32 ms, after silence."""
    return {
        "AUDIO": 0.1 * _normal(1, 512),
        "STATE_IN": np.zeros((1, 2, 128), np.float32),
        "CONTEXT_IN": np.zeros((1, 64), np.float32),
    }


def _normal(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
