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
from numpy.typing import NDArray

from python_backends.errors import InvalidInput, StageFailed
from python_backends.slot_engine import sampling
from python_backends.slot_engine.bound import BoundGraph, open_session
from python_backends.slot_engine.candidates import Best, Ids, Values, best_of
from python_backends.slot_engine.command import (
    GREEDY_BELOW,
    MAX_CHUNK,
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
from python_backends.slot_engine.shelf import Shelf


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
        self._generation = _read_json(folder / "generation.json")
        admit = folder / "admit.onnx"
        self._admit = open_session(admit, threads) if admit.exists() else None
        self._graph = BoundGraph(
            folder / graph,
            slots=slots,
            capacity=capacity,
            threads=threads,
            context=[node.name for node in self._admit.get_outputs()] if self._admit else [],
            context_widths=self._generation.get("context_widths", []),
        )
        self.width, self.pools = self._graph.width, self._graph.pools
        self.tokens = np.zeros((slots, capacity, self.width), np.int64)
        """What each row holds, by position; beyond a row's length it is anybody's."""

        self._best = _graph_of_best(folder / "sampler.onnx", threads)
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

    def logits(self, row: int) -> NDArray[np.float32]:
        """Those [vocabulary] that a row last drew from; a view. StageFailed for a graph that draws
        inside."""
        if self._graph.next is not None:
            raise StageFailed("this graph draws inside: it shows no logits")
        found: NDArray[np.float32] = self._graph.logits[row]
        return found

    def _prefill(self, part: Prefill) -> tuple[Drawn | None, float]:
        count = len(part.tokens)
        self._check_fit(part.row, part.start, count)
        self._check_sampling((part.sampling,))
        if part.start == 0:
            self._fill_context(part)
        if part.restore is not None:
            self._restore(part.row, part.restore)
        tokens = part.tokens.reshape(count, self.width)
        self._graph.chunk_ids[: tokens.size] = tokens.reshape(-1)
        self._graph.chunk_start[0] = part.start
        self.tokens[part.row, part.start : part.start + count] = tokens
        rows = slice(part.row, part.row + 1)
        position = np.array([part.start + count])
        self._set_noise(self._graph.chunk_noise, (part.sampling,), position)
        no_speech = self._no_speech(part)
        self._graph.execute(part.row, 1, count, draws=part.is_last)
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
        self._graph.ids[: tokens.size] = tokens.reshape(-1)
        self._graph.starts[:count] = part.starts
        self.tokens[np.arange(count), part.starts] = tokens
        self._set_noise(self._graph.noise, part.sampling, part.starts + 1)
        self._graph.execute(0, count, 0)
        return self._draw(slice(0, count), part.sampling, part.starts + 1, first=False)

    def _draw(
        self, rows: slice, how: tuple[Sampling, ...], positions: NDArray[np.int64], *, first: bool
    ) -> Drawn:
        if self._graph.next is not None:
            drawn = Drawn(self._graph.next[rows].copy(), np.zeros(len(how), np.float32))
        else:
            logits = self._graph.logits[rows]
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
        self._graph.execute(part.row, 1, 1)
        return sampling.probability(self._graph.logits[part.row], token)

    def _check_fit(self, row: int, start: int, count: int) -> None:
        if not 0 <= row < self.slots or start < 0 or start + count > self.capacity:
            raise InvalidInput(
                f"row {row}, tokens {start} to {start + count}: the pool has {self.slots} rows of "
                f"{self.capacity}"
            )
        if count > MAX_CHUNK:
            raise InvalidInput(f"a chunk of {count} tokens; at most {MAX_CHUNK} are accepted")

    def _check_sampling(self, how: tuple[Sampling, ...]) -> None:
        if self._graph.next is not None and not all(one.is_plain for one in how):
            raise InvalidInput("this graph draws inside: it knows no penalty and no bias")
        vocabulary = self._graph.logits.shape[1]
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


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}
