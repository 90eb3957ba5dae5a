"""The slot-pool engine: decode steps that update their KV cache in place.

Every layer's K and V is a pool [slots, heads, capacity, D]. Rows 0..n-1 are one decode batch (a
prefix view), a single row is a prefill target (a row view); past and present are the same memory,
by IO binding. One class serves a Llama, Whisper's decoder and the prosody LM: what differs is read
from the graph. Measured alternatives: ../shared/facts/engine.md.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from python_backends.errors import InvalidInput, StageFailed
from python_backends.slot_engine import sampling
from python_backends.slot_engine.candidates import Best, Ids, Values, best_of
from python_backends.slot_engine.command import (
    GREEDY_BELOW,
    PROBE,
    RESTART,
    Command,
    Decode,
    Drawn,
    Keep,
    Prefill,
    Restore,
    Result,
    Sampling,
)
from python_backends.slot_engine.pools import Pools
from python_backends.slot_engine.shelf import Shelf

MAX_CHUNK = 512


def open_session(path: Path, threads: int) -> ort.InferenceSession:
    """A CPU session; spinning off, since other stages share the cores."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class SlotPoolEngine:
    """Runs commands on the graph `folder`/`graph`, and `folder`/admit.onnx where there is one."""

    def __init__(
        self,
        folder: Path,
        *,
        slots: int,
        capacity: int,
        threads: int = 1,
        graph: str = "model.onnx",
        shelf: Shelf | None = None,
    ) -> None:
        self.slots = slots
        self.capacity = capacity
        self._shelf = Shelf() if shelf is None else shelf
        self._session = open_session(folder / graph, threads)
        self._generation = _read_json(folder / "generation.json")
        admit = folder / "admit.onnx"
        self._admit = open_session(admit, threads) if admit.exists() else None
        self._shapes = {node.name: node.shape for node in self._session.get_inputs()}
        self.width = self._shapes["ids"][2] if len(self._shapes["ids"]) == 3 else 1
        self.pools = self._make_pools()
        self.tokens = np.zeros((slots, capacity, self.width), np.int64)
        """What each row holds, by position; beyond a row's length it is anybody's."""

        self._make_buffers()
        self._best = _graph_of_best(folder / "sampler.onnx", threads)
        self._bindings: dict[tuple[int, int, int, int], Any] = {}
        self._expected = RESTART

    def run(self, command: Command) -> Result:
        """Execute keeps, drops, moves, then the prefill chunk, then joins, then the decode step.

        Raises StageFailed for a command out of order, InvalidInput for one that does not fit the
        pool; the rows it names are undefined afterwards.
        """
        if command.number == PROBE:
            return Result(None, None)
        if command.number not in (self._expected, RESTART):
            raise StageFailed(f"command {command.number} came where {self._expected} was due")
        self._expected = command.number + 1
        for keep in command.keeps:
            self._set_aside(keep)
        for key in command.drops:
            self._shelf.drop(key)
        for move in command.moves:
            self.pools.move(move.source, move.target, move.length)
            self.tokens[move.target, : move.length] = self.tokens[move.source, : move.length]
        prefill, no_speech = None, 0.0
        if command.prefill is not None:
            prefill, no_speech = self._prefill(command.prefill)
        joins = [drawn for join in command.joins if (drawn := self._prefill(join)[0]) is not None]
        decode = self._decode(command.decode) if command.decode is not None else None
        return Result(prefill, decode, no_speech, tuple(joins))

    def _prefill(self, part: Prefill) -> tuple[Drawn | None, float]:
        count = len(part.tokens)
        self._check_fit(part.row, part.start, count)
        self._check_sampling((part.sampling,))
        if part.start == 0:
            self._fill_context(part)
        if part.restore is not None:
            self._restore(part.row, part.restore)
        tokens = part.tokens.reshape(count, self.width)
        self._chunk_ids[: tokens.size] = tokens.reshape(-1)
        self._chunk_start[0] = part.start
        self.tokens[part.row, part.start : part.start + count] = tokens
        rows = slice(part.row, part.row + 1)
        position = np.array([part.start + count])
        self._set_noise(self._chunk_noise, (part.sampling,), position)
        no_speech = self._no_speech(part)
        self._execute(part.row, 1, count, draws=part.is_last)
        if not part.is_last:
            return None, no_speech
        drawn = self._draw(rows, (part.sampling,), position, first=True)
        return drawn, no_speech

    def _set_aside(self, keep: Keep) -> None:
        held = self.pools.copied(keep.row, keep.length)
        self._shelf.put(keep.key, held | {"tokens": self.tokens[keep.row, : keep.length].copy()})

    def _restore(self, row: int, what: Restore) -> None:
        held = self._shelf.get(what.key)
        if held is None:
            raise StageFailed(f"nothing is set aside under {what.key}")
        self.pools.paste(held, row, what.length)
        self.tokens[row, : what.length] = held["tokens"][: what.length]

    def _decode(self, part: Decode) -> Drawn:
        count = len(part.tokens)
        self._check_fit(count - 1, int(part.starts.max()), 1)
        self._check_sampling(part.sampling)
        tokens = part.tokens.reshape(count, self.width)
        self._ids[: tokens.size] = tokens.reshape(-1)
        self._starts[:count] = part.starts
        self.tokens[np.arange(count), part.starts] = tokens
        self._set_noise(self._noise, part.sampling, part.starts + 1)
        self._execute(0, count, 0)
        return self._draw(slice(0, count), part.sampling, part.starts + 1, first=False)

    def _draw(
        self, rows: slice, how: tuple[Sampling, ...], positions: NDArray[np.int64], *, first: bool
    ) -> Drawn:
        if self._next is not None:
            drawn = Drawn(self._next[rows].copy(), np.zeros(len(how), np.float32))
        else:
            logits = self._logits[rows]
            logits[:, self._generation.get("suppress", [])] = -np.inf
            if first:
                logits[:, self._generation.get("suppress_first", [])] = -np.inf
            held = self.tokens[rows, :, 0]
            scored = "no_speech" in self._generation
            drawn = sampling.draw(logits, how, positions, held, self._best, scored=scored)
        for row in np.flatnonzero(drawn.tokens[:, 0] < 0):
            self.pools.scrub(rows.start + int(row))
        return drawn

    def _no_speech(self, part: Prefill) -> float:
        """Whisper's probability of silence. It is said behind the first token, which is run alone
        for it; one position later Whisper has decided to speak (of noise: 0.001, not 0.96)."""
        token = self._generation.get("no_speech")
        if token is None or part.start > 0:
            return 0.0
        self._execute(part.row, 1, 1)
        return sampling.probability(self._logits[part.row], token)

    def _check_fit(self, row: int, start: int, count: int) -> None:
        if not 0 <= row < self.slots or start < 0 or start + count > self.capacity:
            raise InvalidInput(
                f"row {row}, tokens {start} to {start + count}: the pool has {self.slots} rows of "
                f"{self.capacity}"
            )
        if count > MAX_CHUNK:
            raise InvalidInput(f"a chunk of {count} tokens; at most {MAX_CHUNK} are accepted")

    def _check_sampling(self, how: tuple[Sampling, ...]) -> None:
        if self._next is not None and not all(one.is_plain for one in how):
            raise InvalidInput("this graph draws inside: it knows no penalty and no bias")
        vocabulary = self._logits.shape[1]
        for token in (token for one in how for token, _ in one.bias):
            if not 0 <= token < vocabulary:
                raise InvalidInput(f"bias of token {token}; 0 to {vocabulary - 1} are known")

    def _fill_context(self, part: Prefill) -> None:
        if self._admit is None:
            return
        expected = {node.name for node in self._admit.get_inputs()}
        if set(part.context) != expected:
            raise InvalidInput(f"context {sorted(part.context)}; {sorted(expected)} is needed")
        names = [node.name for node in self._admit.get_outputs()]
        try:
            values = self._admit.run(names, {key: v[None] for key, v in part.context.items()})
        except Exception as fault:  # onnxruntime raises several unrelated types
            raise StageFailed(f"the admit graph failed: {fault}") from fault
        filled = {name: value[0] for name, value in zip(names, values, strict=True)}
        try:
            self.pools.context.fill(part.row, filled)
        except ValueError as fault:
            raise InvalidInput(str(fault)) from fault

    def _set_noise(
        self, buffer: NDArray[np.float32], how: tuple[Sampling, ...], positions: NDArray[np.int64]
    ) -> None:
        """Gumbel noise for graphs that draw inside, times each row's temperature; 0 is greedy."""
        if not buffer.size:
            return
        drawing = [row for row, one in enumerate(how) if one.temperature >= GREEDY_BELOW]
        buffer[: len(how)] = 0
        if drawing:
            seeds = np.array([how[row].seed for row in drawing], np.int64)
            scale = np.array([[how[row].temperature] for row in drawing])
            places = np.arange(buffer.shape[1])
            buffer[drawing] = scale * sampling.gumbel(seeds, positions[drawing], places)

    def _execute(self, first: int, count: int, chunk: int, *, draws: bool = True) -> None:
        """Run rows first..first+count-1: a chunk of `chunk` tokens, or a decode step (0)."""
        self._draws[0] = draws
        key = (first, count, chunk, self.pools.context.width_of(first, count))
        if key not in self._bindings:
            self._bindings[key] = self._bind(*key)
        try:
            self._session.run_with_iobinding(self._bindings[key])
        except Exception as fault:  # onnxruntime raises several unrelated types
            raise StageFailed(f"the step graph failed: {fault}") from fault

    def _bind(self, first: int, count: int, chunk: int, width: int) -> Any:
        """Fix every address once; a step then needs no binding call at all."""
        binding = self._session.io_binding()
        prefill = chunk > 0
        ids = self._chunk_ids if prefill else self._ids
        shape: tuple[int, ...] = (count, chunk or 1)
        if self.width > 1:
            shape = (*shape, self.width)
        _bind_input(binding, "ids", ids, shape)
        start = self._chunk_start if prefill else self._starts
        _bind_input(binding, "start", start, (count,))
        if "noise" in self._shapes:
            noise = self._chunk_noise if prefill else self._noise
            _bind_input(binding, "noise", noise, (count, noise.shape[1]))
        if "draws" in self._shapes:
            _bind_input(binding, "draws", self._draws, (1,))
        if "clen" in self._shapes:
            _bind_input(binding, "clen", self.pools.context.length[first:], (count,))
        for name, pool in self.pools.context.pools[width].items():
            _bind_input(binding, name, pool[first:], (count, *pool.shape[1:]))
        for name, pool in self.pools.kv.items():
            view, shape = pool[first:], (count, *pool.shape[1:])
            _bind_input(binding, name, view, shape)
            _bind_output(binding, f"{name[0]}o{name[1:]}", view, shape)
        out = self._logits if self._next is None else self._next
        name = "logits" if self._next is None else "next"
        _bind_output(binding, name, out[first:], (count, out.shape[1]))
        return binding

    def _make_pools(self) -> Pools:
        context = [node.name for node in self._admit.get_outputs()] if self._admit else []
        kv = [
            name
            for name in self._shapes
            if name[0] in "kv" and name[1:].isdigit() and name not in context
        ]
        return Pools(
            {name: self._pool_shape(name, self.capacity) for name in kv},
            {
                width: {name: self._pool_shape(name, width) for name in context}
                for width in self._context_widths(context)
            },
        )

    def _context_widths(self, names: list[str]) -> list[int]:
        """The width the graph gives its context pools, or the several it may be run at."""
        if not names:
            return []
        declared = self._shapes[names[0]][-2]
        return [declared] if isinstance(declared, int) else self._generation["context_widths"]

    def _pool_shape(self, name: str, length: int) -> tuple[int, ...]:
        """The pool of a graph input: slots rows; a symbolic length axis becomes `length`."""
        dims = [self.slots, *self._shapes[name][1:]]
        if not isinstance(dims[-2], int):
            dims[-2] = length
        if dims[-2] < length:
            raise ValueError(f"capacity {length}, but the graph has room for {dims[-2]}")
        return tuple(int(dim) for dim in dims)

    def _make_buffers(self) -> None:
        outputs = {node.name: node.shape for node in self._session.get_outputs()}
        noise = self._shapes["noise"][1] if "noise" in self._shapes else 0
        self._ids = np.zeros(self.slots * self.width, np.int64)
        self._starts = np.zeros(self.slots, np.int64)
        self._noise = np.zeros((self.slots, noise), np.float32)
        self._chunk_ids = np.zeros(MAX_CHUNK * self.width, np.int64)
        self._chunk_start = np.zeros(1, np.int64)
        self._draws = np.ones(1, np.bool_)
        self._chunk_noise = np.zeros((1, noise), np.float32)
        vocabulary = outputs["logits"][-1] if "logits" in outputs else 0
        self._logits = np.zeros((self.slots, vocabulary), np.float32)
        self._next = np.zeros((self.slots, self.width), np.int64) if "next" in outputs else None


def _graph_of_best(path: Path, threads: int) -> Best:
    """The graph's top candidates: ten times as fast as numpy, which stands in where it is missing.

    `run` reads the logits where they lie; binding them by hand was measured to gain nothing.
    """
    if not path.exists():
        return best_of
    session = open_session(path, threads)

    def best(logits: Values) -> tuple[Values, Ids]:
        values, ids = session.run(["values", "ids"], {"logits": logits})
        return values, ids

    return best


def _bind_input(binding: Any, name: str, memory: NDArray[Any], shape: tuple[int, ...]) -> None:
    binding.bind_input(name, "cpu", 0, memory.dtype.type, shape, memory.ctypes.data)


def _bind_output(binding: Any, name: str, memory: NDArray[Any], shape: tuple[int, ...]) -> None:
    binding.bind_output(name, "cpu", 0, memory.dtype.type, shape, memory.ctypes.data)


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}
