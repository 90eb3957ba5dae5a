"""The slot-pool engine: decode steps that update their KV cache in place.

Every layer's K and V is a pool [slots, heads, capacity, D]. Rows 0..n-1 are one decode batch (a
prefix view), a single row is a prefill target (a row view); past and present are the same memory.
One class serves a Llama, Whisper's decoder and the prosody LM: what differs is read from the graph.
It runs on ONNX Runtime and NumPy's memory, or on TensorRT and a GPU's: see rows.py. Measured
alternatives: ../shared/facts/engine.md.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.errors import InvalidInput, StageFailed
from python_backends.slot_engine.bound import open_session
from python_backends.slot_engine.command import (
    PROBE,
    RESTART,
    Command,
    Decode,
    Drawn,
    Prefill,
    Restore,
    Result,
    Sampling,
)
from python_backends.slot_engine.host_rows import HostRows
from python_backends.slot_engine.rows import First, Rows, Rules
from python_backends.slot_engine.shelf import Shelf

MakeRows = Callable[[Sequence[str], Rules], Rows]
"""Rows for the context pools of these names."""


class SlotPoolEngine:
    """Runs commands on the graph `folder`/`graph`, and `folder`/admit.onnx where there is one.

    `rows` makes what runs the graph instead, and needs neither `graph` nor `threads`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slots: int,
        capacity: int,
        threads: int = 1,
        graph: str = "model.onnx",
        shelf: Shelf | None = None,
        rows: MakeRows | None = None,
    ) -> None:
        self.slots = slots
        self.capacity = capacity
        self._shelf = Shelf() if shelf is None else shelf
        rules = Rules.of(_read_json(folder / "generation.json"))
        admit = folder / "admit.onnx"
        self._admit = open_session(admit, threads) if admit.exists() else None
        context = [node.name for node in self._admit.get_outputs()] if self._admit else []
        if rows is not None:
            self.rows = rows(context, rules)
        else:
            self.rows = HostRows(
                folder / graph,
                slots=slots,
                capacity=capacity,
                threads=threads,
                context=context,
                rules=rules,
            )
        self.width, self.pools = self.rows.width, self.rows.pools
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
        with self.rows.command():
            self._arrange(command)
            chunk = None if command.prefill is None else self._prefill(command.prefill)
            firsts = [self._prefill(join) for join in command.joins]
            step = None if command.decode is None else self._decode(command.decode)
        prefill, no_speech = (None, 0.0) if chunk is None else chunk()
        joins = [drawn for first in firsts if (drawn := first()[0]) is not None]
        result = Result(prefill, None if step is None else step(), no_speech, tuple(joins))
        self._scrub(command, result)
        return result

    def logits(self, row: int) -> NDArray[np.float32]:
        """[vocabulary], as a row last drew from. StageFailed for a graph that draws inside."""
        return self.rows.logits(row)

    def _arrange(self, command: Command) -> None:
        for keep in command.keeps:
            self._shelf.put(keep.key, self.pools.copied(keep.row, keep.length))
        for key in command.drops:
            self._shelf.drop(key)
        for move in command.moves:
            self.pools.move(move.source, move.target, move.length)

    def _prefill(self, part: Prefill) -> First:
        self._check_fit(part.row, part.start, len(part.tokens))
        self._check_chunk(len(part.tokens))
        self._check_sampling((part.sampling,))
        if part.start == 0:
            self._fill_context(part)
        if part.restore is not None:
            self._restore(part.row, part.restore)
        return self.rows.prefill(part)

    def _restore(self, row: int, what: Restore) -> None:
        held = self._shelf.get(what.key)
        if held is None:
            raise StageFailed(f"nothing is set aside under {what.key}")
        self.pools.paste(held, row, what.length)

    def _decode(self, part: Decode) -> Callable[[], Drawn]:
        self._check_fit(len(part.tokens) - 1, int(part.starts.max()), 1)
        self._check_sampling(part.sampling)
        return self.rows.decode(part)

    def _scrub(self, command: Command, result: Result) -> None:
        """Rows whose numbers were not finite."""
        prompts = [command.prefill] if result.prefill is not None and command.prefill else []
        drawn = [result.prefill] if result.prefill is not None else []
        for part, one in zip([*prompts, *command.joins], [*drawn, *result.joins], strict=True):
            if one.tokens[0, 0] < 0:
                self.rows.scrub(part.row)
        if result.decode is not None:
            for row in np.flatnonzero(result.decode.tokens[:, 0] < 0):
                self.rows.scrub(int(row))

    def _check_fit(self, row: int, start: int, count: int) -> None:
        if not 0 <= row < self.slots or start < 0 or start + count > self.capacity:
            raise InvalidInput(
                f"row {row}, tokens {start} to {start + count}: the pool has {self.slots} rows of "
                f"{self.capacity}"
            )

    def _check_chunk(self, count: int) -> None:
        if count > self.rows.longest_chunk:
            raise InvalidInput(
                f"a chunk of {count} tokens; at most {self.rows.longest_chunk} are accepted"
            )

    def _check_sampling(self, how: Sequence[Sampling]) -> None:
        vocabulary = self.rows.vocabulary
        if vocabulary is None:
            if not all(one.is_plain for one in how):
                raise InvalidInput("this graph draws inside: it knows no penalty and no bias")
            return
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


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}
