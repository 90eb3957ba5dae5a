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
from python_backends.slot_engine.command import (
    PROBE,
    RESTART,
    Command,
    Decode,
    Drawn,
    Prefill,
    Result,
    Sampling,
)
from python_backends.slot_engine.pools import Pools

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
    ) -> None:
        self.slots = slots
        self.capacity = capacity
        self._session = open_session(folder / graph, threads)
        self._generation = _read_json(folder / "generation.json")
        admit = folder / "admit.onnx"
        self._admit = open_session(admit, threads) if admit.exists() else None
        self._shapes = {node.name: node.shape for node in self._session.get_inputs()}
        self.width = self._shapes["ids"][2] if len(self._shapes["ids"]) == 3 else 1
        self.pools = self._make_pools()
        self._make_buffers()
        self._bindings: dict[tuple[int, int, int], Any] = {}
        self._expected = RESTART

    def run(self, command: Command) -> Result:
        """Execute moves, then the prefill chunk, then joins, then the decode step.

        Raises StageFailed for a command out of order, InvalidInput for one that does not fit the
        pool; the rows it names are undefined afterwards.
        """
        if command.number == PROBE:
            return Result(None, None)
        if command.number not in (self._expected, RESTART):
            raise StageFailed(f"command {command.number} came where {self._expected} was due")
        self._expected = command.number + 1
        for move in command.moves:
            self.pools.move(move.source, move.target, move.length)
        prefill, no_speech = None, 0.0
        if command.prefill is not None:
            prefill, no_speech = self._prefill(command.prefill)
        joins = [drawn for join in command.joins if (drawn := self._prefill(join)[0]) is not None]
        decode = self._decode(command.decode) if command.decode is not None else None
        return Result(prefill, decode, no_speech, tuple(joins))

    def _prefill(self, part: Prefill) -> tuple[Drawn | None, float]:
        count = len(part.tokens)
        self._check_fit(part.row, part.start, count)
        if part.start == 0:
            self._fill_context(part)
        self._chunk_ids.reshape(-1)[: count * self.width] = part.tokens.reshape(-1)
        self._chunk_start[0] = part.start
        rows = slice(part.row, part.row + 1)
        position = np.array([part.start + count])
        self._set_noise(self._chunk_noise, (part.sampling,), position)
        self._execute(part.row, 1, count)
        if not part.is_last:
            return None, 0.0
        no_speech = self._no_speech(part.row)
        drawn = self._draw(rows, (part.sampling,), position, first=True)
        return drawn, no_speech

    def _decode(self, part: Decode) -> Drawn:
        count = len(part.tokens)
        self._check_fit(count - 1, int(part.starts.max()), 1)
        self._ids.reshape(self.slots, self.width)[:count] = part.tokens.reshape(count, self.width)
        self._starts[:count] = part.starts
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
            scored = "no_speech" in self._generation
            drawn = sampling.draw(logits, how, positions, scored=scored)
        for row in np.flatnonzero(drawn.tokens[:, 0] < 0):
            self.pools.scrub(rows.start + int(row))
        return drawn

    def _no_speech(self, row: int) -> float:
        token = self._generation.get("no_speech")
        return 0.0 if token is None else sampling.probability(self._logits[row], token)

    def _check_fit(self, row: int, start: int, count: int) -> None:
        if not 0 <= row < self.slots or start < 0 or start + count > self.capacity:
            raise InvalidInput(
                f"row {row}, tokens {start} to {start + count}: the pool has {self.slots} rows of "
                f"{self.capacity}"
            )
        if count > MAX_CHUNK:
            raise InvalidInput(f"a chunk of {count} tokens; at most {MAX_CHUNK} are accepted")

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
        for name, value in zip(names, values, strict=True):
            try:
                self.pools.fill(part.row, name, value[0])
            except ValueError as fault:
                raise InvalidInput(str(fault)) from fault

    def _set_noise(
        self, buffer: NDArray[np.float32], how: tuple[Sampling, ...], positions: NDArray[np.int64]
    ) -> None:
        """Gumbel noise for graphs that draw inside, times each row's temperature; 0 is greedy."""
        if not buffer.size:
            return
        for row, one in enumerate(how):
            if one.temperature < sampling.GREEDY_BELOW:
                buffer[row] = 0
            else:
                noise = sampling.gumbel(one.seed, int(positions[row]), buffer.shape[1])
                buffer[row] = noise * np.float32(one.temperature)

    def _execute(self, first: int, count: int, chunk: int) -> None:
        """Run rows first..first+count-1: a chunk of `chunk` tokens, or a decode step (0)."""
        key = (first, count, chunk)
        if key not in self._bindings:
            self._bindings[key] = self._bind(first, count, chunk)
        try:
            self._session.run_with_iobinding(self._bindings[key])
        except Exception as fault:  # onnxruntime raises several unrelated types
            raise StageFailed(f"the step graph failed: {fault}") from fault

    def _bind(self, first: int, count: int, chunk: int) -> Any:
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
        if "clen" in self._shapes:
            _bind_input(binding, "clen", self.pools.context_length[first:], (count,))
        for name, pool in self.pools.context.items():
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
            {name: self._pool_shape(name, -2) for name in kv},
            {name: self._pool_shape(name, None) for name in context},
        )

    def _pool_shape(self, name: str, length_axis: int | None) -> tuple[int, ...]:
        """The pool of a graph input: slots rows; a symbolic length becomes the capacity."""
        dims = [self.slots, *self._shapes[name][1:]]
        if length_axis is not None:
            declared = dims[length_axis]
            if isinstance(declared, int) and declared < self.capacity:
                raise ValueError(f"capacity {self.capacity}, but the graph has room for {declared}")
            if not isinstance(declared, int):
                dims[length_axis] = self.capacity
        return tuple(int(dim) for dim in dims)

    def _make_buffers(self) -> None:
        outputs = {node.name: node.shape for node in self._session.get_outputs()}
        noise = self._shapes["noise"][1] if "noise" in self._shapes else 0
        self._ids = np.zeros(self.slots * self.width, np.int64)
        self._starts = np.zeros(self.slots, np.int64)
        self._noise = np.zeros((self.slots, noise), np.float32)
        self._chunk_ids = np.zeros(MAX_CHUNK * self.width, np.int64)
        self._chunk_start = np.zeros(1, np.int64)
        self._chunk_noise = np.zeros((1, noise), np.float32)
        vocabulary = outputs["logits"][-1] if "logits" in outputs else 0
        self._logits = np.zeros((self.slots, vocabulary), np.float32)
        self._next = np.zeros((self.slots, self.width), np.int64) if "next" in outputs else None


def _bind_input(binding: Any, name: str, memory: NDArray[Any], shape: tuple[int, ...]) -> None:
    binding.bind_input(name, "cpu", 0, memory.dtype.type, shape, memory.ctypes.data)


def _bind_output(binding: Any, name: str, memory: NDArray[Any], shape: tuple[int, ...]) -> None:
    binding.bind_output(name, "cpu", 0, memory.dtype.type, shape, memory.ctypes.data)


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}
