"""What a loop orders from a slot-pool engine, and what it gets back.

The same objects serve an engine in the loop's own process and, as tensors, one behind BLS.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from python_backends.errors import InvalidInput
from python_backends.scheduling.continuous import Move

Tokens = NDArray[np.int64]

PROBE = -1
"""A command number that does nothing: for readiness checks."""

RESTART = 0
"""A command number that is always in order: a new loop begins with it."""

OUTPUTS = ("PREFILL_NEXT", "PREFILL_SCORE", "DECODE_NEXT", "DECODE_SCORE")
_OWN = {
    "COMMAND",
    "MOVES",
    "PREFILL",
    "PREFILL_TOKENS",
    "DECODE_TOKENS",
    "DECODE_STARTS",
    "TEMPERATURE",
    "SEED",
}


@dataclass(frozen=True)
class Sampling:
    """How a row's next token is drawn; a temperature below 0.001 is greedy."""

    temperature: float = 0.0
    seed: int = 0


GREEDY = Sampling()


@dataclass(frozen=True)
class Prefill:
    """`tokens` [T] or [T, width] written to `row` from position `start` on.

    `context` (at start 0 only) goes through the admit graph into the row's context pools.
    Only the last chunk draws a token.
    """

    row: int
    start: int
    tokens: Tokens
    is_last: bool
    sampling: Sampling = GREEDY
    context: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Decode:
    """One step of rows 0..n-1: `tokens` [n] or [n, width] written at positions `starts` [n]."""

    tokens: Tokens
    starts: Tokens
    sampling: tuple[Sampling, ...]


@dataclass(frozen=True)
class Command:
    """Numbered, so that a swapped or lost one is refused instead of corrupting a row."""

    number: int
    moves: tuple[Move, ...] = ()
    prefill: Prefill | None = None
    decode: Decode | None = None
    joins: tuple[Prefill, ...] = ()
    """Further whole prompts; only an engine in the loop's own process takes them."""


@dataclass(frozen=True)
class Drawn:
    """Tokens drawn, one a row: `tokens` [rows, width]; -1 where numbers were not finite.

    `scores` [rows]: log-probability of each, 0 where the engine keeps none.
    """

    tokens: Tokens
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Result:
    """`prefill` (one row) is None unless a last chunk was run; `decode` is None without a step."""

    prefill: Drawn | None
    decode: Drawn | None
    no_speech: float = 0.0
    """Whisper: probability of "no speech" as the first token."""

    joins: tuple[Drawn, ...] = ()
    """One row each."""


class StepEngine(Protocol):
    """An engine, wherever it runs."""

    def run(self, command: Command) -> Result:
        """Execute one command. StageFailed leaves the rows it named undefined."""


def to_inputs(command: Command) -> dict[str, NDArray[Any]]:
    """The command as the input tensors of a slot_engine model; they have no place for joins."""
    assert not command.joins, "joins need an engine in the loop's own process"
    inputs: dict[str, NDArray[Any]] = {"COMMAND": np.array([[command.number]], np.int64)}
    if command.moves:
        rows = [(move.source, move.target, move.length) for move in command.moves]
        inputs["MOVES"] = np.array([rows], np.int32)
    sampling: list[Sampling] = []
    if command.prefill is not None:
        part = command.prefill
        inputs["PREFILL"] = np.array([[part.row, part.start, part.is_last]], np.int64)
        inputs["PREFILL_TOKENS"] = part.tokens.reshape(1, -1)
        inputs.update({name: values[None] for name, values in part.context.items()})
        sampling.append(part.sampling)
    if command.decode is not None:
        inputs["DECODE_TOKENS"] = command.decode.tokens.reshape(1, -1)
        inputs["DECODE_STARTS"] = command.decode.starts.reshape(1, -1)
        sampling.extend(command.decode.sampling)
    if sampling:
        inputs["TEMPERATURE"] = np.array([[one.temperature for one in sampling]], np.float32)
        inputs["SEED"] = np.array([[one.seed for one in sampling]], np.int64)
    return inputs


def from_inputs(inputs: Mapping[str, NDArray[Any]], width: int) -> Command:
    """The reverse of `to_inputs`; `width` is the engine's numbers per token."""
    rows = {name: values[0] for name, values in inputs.items()}
    if "COMMAND" not in rows:
        raise InvalidInput("input COMMAND is missing")
    sampling = [
        Sampling(float(temperature), int(seed))
        for temperature, seed in zip(rows.get("TEMPERATURE", ()), rows.get("SEED", ()), strict=True)
    ]
    return Command(
        number=int(rows["COMMAND"][0]),
        moves=tuple(Move(*map(int, move)) for move in rows.get("MOVES", ())),
        prefill=_prefill(rows, sampling, width),
        decode=_decode(rows, sampling, width),
    )


def to_outputs(result: Result, width: int) -> dict[str, NDArray[Any]]:
    """The result as output tensors; a missing part is one -1, since empty tensors do not travel."""
    prefill, decode = result.prefill or _nothing(width), result.decode or _nothing(width)
    return {
        "PREFILL_NEXT": prefill.tokens.reshape(1, -1),
        "PREFILL_SCORE": np.array([[prefill.scores[0], result.no_speech]], np.float32),
        "DECODE_NEXT": decode.tokens.reshape(1, -1),
        "DECODE_SCORE": decode.scores.reshape(1, -1),
    }


def from_outputs(outputs: Mapping[str, NDArray[Any]], command: Command, width: int) -> Result:
    """The reverse of `to_outputs`, knowing what was ordered."""
    prefill = decode = None
    if command.prefill is not None and command.prefill.is_last:
        tokens = outputs["PREFILL_NEXT"].reshape(-1, width)
        prefill = Drawn(tokens, outputs["PREFILL_SCORE"].reshape(-1)[:1])
    if command.decode is not None:
        decode = Drawn(
            outputs["DECODE_NEXT"].reshape(-1, width), outputs["DECODE_SCORE"].reshape(-1)
        )
    return Result(prefill, decode, float(outputs["PREFILL_SCORE"].reshape(-1)[1]))


def _prefill(
    rows: Mapping[str, NDArray[Any]], sampling: list[Sampling], width: int
) -> Prefill | None:
    if "PREFILL" not in rows:
        return None
    row, start, is_last = map(int, rows["PREFILL"])
    context = {name: values for name, values in rows.items() if name not in _OWN}
    tokens = _tokens(rows["PREFILL_TOKENS"], width)
    return Prefill(row, start, tokens, bool(is_last), sampling[0], context)


def _decode(
    rows: Mapping[str, NDArray[Any]], sampling: list[Sampling], width: int
) -> Decode | None:
    if "DECODE_TOKENS" not in rows:
        return None
    skip = 1 if "PREFILL" in rows else 0
    starts = rows["DECODE_STARTS"].astype(np.int64)
    return Decode(_tokens(rows["DECODE_TOKENS"], width), starts, tuple(sampling[skip:]))


def _tokens(flat: NDArray[Any], width: int) -> Tokens:
    flat = flat.astype(np.int64)
    return flat if width == 1 else flat.reshape(-1, width)


def _nothing(width: int) -> Drawn:
    return Drawn(np.full((1, width), -1, np.int64), np.zeros(1, np.float32))
