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

GREEDY_BELOW = 1e-3
"""A temperature that is as good as none."""

MAX_CHUNK = 512
"""Tokens of a prompt that an engine takes in one command."""

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
    "SAMPLING",
    "SEED",
    "BIAS_AT",
    "BIAS",
}


@dataclass(frozen=True)
class Sampling:
    """How a row's next token is drawn; see slot_engine/sampling.py for the order.

    A graph that draws inside knows `temperature` and `seed` alone.
    """

    temperature: float = 0.0
    seed: int = 0
    top_k: int = 40
    """1 to `candidates.CANDIDATES`."""

    top_p: float = 1.0
    """Above 0; 1 is off."""

    repetition_penalty: float = 1.0
    """Of tokens that the row holds, prompt and answer alike; 1 is off."""

    bias: tuple[tuple[int, float], ...] = ()
    """Tokens, each once, and what is added to their logits."""

    @property
    def is_greedy(self) -> bool:
        """The best token is taken, noise plays no part."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    @property
    def is_plain(self) -> bool:
        """The graph's logits are taken as they are."""
        return self.repetition_penalty == 1 and not self.bias


GREEDY = Sampling()


@dataclass(frozen=True)
class Keep:
    """Set aside the first `length` tokens of `row` under `key`, before any row is written."""

    key: int
    row: int
    length: int


@dataclass(frozen=True)
class Restore:
    """Write the first `length` tokens of what was set aside under `key`."""

    key: int
    length: int


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
    restore: Restore | None = None
    """What the row begins with; `start` is its length."""


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

    keeps: tuple[Keep, ...] = ()
    drops: tuple[int, ...] = ()
    """Keys of what is set aside that may be forgotten. Keeps, drops and restores are also only for
    an engine in the loop's own process."""


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
    """The command as the input tensors of a slot_engine model; they have no place for joins, nor
    for what is set aside."""
    restored = command.prefill is not None and command.prefill.restore is not None
    beyond = command.joins or command.keeps or command.drops or restored
    assert not beyond, "joins and keeps need an engine in the loop's own process"
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
    return inputs | _sampling_inputs(sampling)


def from_inputs(inputs: Mapping[str, NDArray[Any]], width: int) -> Command:
    """The reverse of `to_inputs`; `width` is the engine's numbers per token."""
    rows = {name: values[0] for name, values in inputs.items()}
    if "COMMAND" not in rows:
        raise InvalidInput("input COMMAND is missing")
    sampling = _sampling(
        rows, prefills="PREFILL" in rows, decodes=len(rows.get("DECODE_STARTS", ()))
    )
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


def _sampling_inputs(sampling: list[Sampling]) -> dict[str, NDArray[Any]]:
    """Per row SAMPLING, SEED and its entries of BIAS_AT and BIAS; nothing where all are greedy."""
    if all(one.is_greedy and one.is_plain for one in sampling):
        return {}
    how = [(one.temperature, one.top_k, one.top_p, one.repetition_penalty) for one in sampling]
    inputs: dict[str, NDArray[Any]] = {
        "SAMPLING": np.array([how], np.float32),
        "SEED": np.array([[one.seed for one in sampling]], np.int64),
    }
    biases = [(row, *pair) for row, one in enumerate(sampling) for pair in one.bias]
    if biases:
        inputs["BIAS_AT"] = np.array([[(row, token) for row, token, _ in biases]], np.int32)
        inputs["BIAS"] = np.array([[added for _, _, added in biases]], np.float32)
    return inputs


def _sampling(rows: Mapping[str, NDArray[Any]], *, prefills: bool, decodes: int) -> list[Sampling]:
    """The reverse of `_sampling_inputs`, for a prefill and so many decoding rows."""
    count = prefills + decodes
    if "SAMPLING" not in rows:
        return [GREEDY] * count
    how, seeds = rows["SAMPLING"], rows.get("SEED", ())
    if not len(how) == len(seeds) == count:
        raise InvalidInput(f"SAMPLING has {len(how)} rows, SEED {len(seeds)}; {count} are needed")
    biases: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    places, values = rows.get("BIAS_AT", ()), rows.get("BIAS", ())
    if len(places) != len(values) or not all(0 <= row < count for row, _ in places):
        raise InvalidInput(f"BIAS_AT and BIAS must give the biases of {count} rows")
    for (row, token), added in zip(places, values, strict=True):
        biases[row].append((int(token), float(added)))
    return [
        Sampling(float(t), int(seed), int(k), float(p), float(penalty), tuple(bias))
        for (t, k, p, penalty), seed, bias in zip(how, seeds, biases, strict=True)
    ]


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
