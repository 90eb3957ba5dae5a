"""What a caller may ask for: the request parameters of a turn, parsed once, strictly.

Parameters travel unchanged through an ensemble: every stage parses all of them and reads its own.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from python_backends.errors import InvalidInput

MAX_SEED = 2**63 - 1
MAX_BIASES, MAX_BIAS = 64, 100.0
MAX_STOPS, MAX_STOP_CHARS = 4, 64
MAX_CALLER_CHARS = 128
MAX_SESSION_CHARS = 256
MAX_TURN_CHARS = 256
"""Of a request id at any stage; the front door, which adds to it, takes fewer."""

MAX_JSON_CHARS = 4096
"""Room for the longest value that is accepted, every character of it escaped."""

Biases = tuple[tuple[int, float], ...]
Stops = tuple[str, ...]
_IDS = "-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
TRACEPARENT = re.compile(f"00{_IDS}|(?!00|ff)[0-9a-f]{{2}}{_IDS}(?:-[!-~]{{0,200}})?")
"""https://www.w3.org/TR/trace-context/: a version of the future may say more behind the flags,
within reason; ids of zeros alone and version ff are invalid."""

TOKEN_ID = re.compile("0|[1-9][0-9]{0,8}")

VOICES = ("alto", "baritone")
"""Who may speak."""

SOLVERS = ("euler", "midpoint", "shortcut")


@dataclass(frozen=True)
class Options:
    """Request parameters. Real numbers may come as strings: gRPC parameters had no double."""

    max_tokens: int = 64
    """Tokens of the answer, 1 to 256."""

    temperature: float = 0.0
    """Of the answer's words; below 0.001 is greedy. 0 to 2."""

    top_k: int = 40
    """So many of the likeliest tokens are drawn among, 1 to 64."""

    top_p: float = 1.0
    """Of these only the fewest that hold this share of the probability: above 0, 1 is off."""

    repetition_penalty: float = 1.0
    """Of tokens in prompt and answer; 1 is off, below repeats gladly. 0.5 to 2: each end undoes the
    other, and further out what was said counts for more than what makes sense."""

    logit_bias: Biases = ()
    """Added to the logits of tokens; sent as a JSON object of token id to -100..100, 64 at most."""

    stop: Stops = ()
    """The answer ends before any of these; sent as a JSON list of 1 to 4 strings."""

    speech_temperature: float = 0.3
    """Of durations and pitch, 0 to 1: hotter, words are misheard and nothing new is said."""

    seed: int = 0
    """Of every random draw of the turn."""

    steps: int = 0
    """Flow steps, 1 to 32; 0 takes the stage's default."""

    solver: str = ""
    """One of SOLVERS; empty takes the stage's default."""

    voice: str = VOICES[0]
    """One of VOICES."""

    stream: bool = True
    """False: the answer is one piece and one chunk."""

    min_frames: int = 0
    """Mel frames an encoder window is padded to at least, 0 to 3000."""

    deadline_ms: int = 0
    """After so long an answer that is not complete is ended; 0 is never."""

    caller: str = ""
    """Whose turn it is: `turn` is fair between callers. Empty: of the session, or nobody's."""

    rate_hz: int = 16_000
    """Of the PCM that a live caller sends, 8000 to 48000."""

    partials: bool = False
    """Tell a live caller what was said so far, while they speak."""

    lead_ms: int = 0
    """An answer in a live call stays so far ahead of being heard at most, 100 to 10000; 0 is the
    server's default."""

    ordered: bool = True
    """False: a piece is answered when it is made, and whoever sent it keeps those of a turn in
    order. So it goes where the pieces before it have never been."""

    traceparent: str = ""
    """W3C trace context of the turn, passed on as it is; empty is none."""

    def __post_init__(self) -> None:
        _within("max_tokens", self.max_tokens, 1, 256)
        _within("temperature", self.temperature, 0, 2)
        _within("top_k", self.top_k, 1, 64)
        if not 0 < self.top_p <= 1:
            raise InvalidInput(f"top_p is {_shown(self.top_p)}; above 0, up to 1 is accepted")
        _within("repetition_penalty", self.repetition_penalty, 0.5, 2)
        _within("speech_temperature", self.speech_temperature, 0, 1)
        _within("seed", self.seed, 0, MAX_SEED)
        _within("steps", self.steps, 0, 32)
        _within("min_frames", self.min_frames, 0, 3000)
        _within("deadline_ms", self.deadline_ms, 0, 3_600_000)
        _within("rate_hz", self.rate_hz, 8000, 48_000)
        if self.lead_ms:
            _within("lead_ms", self.lead_ms, 100, 10_000)
        if self.solver:
            _one_of("solver", self.solver, SOLVERS)
        _one_of("voice", self.voice, VOICES)
        if len(self.caller) > MAX_CALLER_CHARS:
            raise InvalidInput(
                f"caller has {len(self.caller)} characters; {MAX_CALLER_CHARS} are accepted"
            )
        if self.traceparent and not TRACEPARENT.fullmatch(self.traceparent):
            wrong = _shown(self.traceparent)
            raise InvalidInput(f"traceparent {wrong} is not version-traceid-parentid-flags in hex")

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> "Options":
        """Options from request parameters; InvalidInput names an unknown key or a wrong value."""
        kinds = {field.name: field.type for field in fields(cls)}
        unknown = sorted(key for key in parameters if key not in kinds)
        if unknown:
            raise InvalidInput(f"unknown parameter {_shown(unknown[0])}; known: {', '.join(kinds)}")
        return cls(**{key: _READERS[str(kinds[key])](key, parameters[key]) for key in parameters})

    @classmethod
    def from_json(cls, parameters: str) -> "Options":
        """Options from the JSON object that Triton hands to a Python backend."""
        found = json.loads(parameters) if parameters else {}
        return cls.parse({key: value for key, value in found.items() if not _internal(key)})

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, as request parameters."""
        changed = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }
        return {key: _sent(value) for key, value in changed.items()}


def _sent(value: Any) -> Any:
    """An option's value as a request parameter."""
    match value:
        case float():
            return str(value)
        case ((int(), _), *_):
            return json.dumps({str(token): bias for token, bias in value})
        case tuple():
            return json.dumps(value)
    return value


def _internal(key: str) -> bool:
    """Keys the server itself adds."""
    return key.startswith("triton_") or key in ("binary_data_output", "headers")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidInput(f"{name} is {_shown(value)}; {low} to {high} is accepted")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput(f"{name} {_shown(value)} is unknown; accepted: {', '.join(known)}")


def _int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidInput(f"{name} is {_shown(value)}, not an integer")
    try:
        return int(value)
    except ValueError as fault:
        raise InvalidInput(f"{name} is {_shown(value)}, not an integer") from fault


def _float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidInput(f"{name} is {_shown(value)}, not a number")
    try:
        return float(value)
    except (ValueError, OverflowError) as fault:
        raise InvalidInput(f"{name} is {_shown(value)}, not a number") from fault


def _bool(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise InvalidInput(f"{name} is {_shown(value)}; true or false is accepted")
    return bool(value == "true")


def _str(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {_shown(value)}, not a string")
    return value


def _json(name: str, value: Any) -> Any:
    """The value of a JSON text; an object becomes the list of its pairs, so none is lost."""
    if not isinstance(value, str) or len(value) > MAX_JSON_CHARS:
        raise InvalidInput(
            f"{name} is {_shown(value)}, not JSON text of at most {MAX_JSON_CHARS} characters"
        )
    try:
        return json.loads(value, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as fault:
        raise InvalidInput(f"{name} is {_shown(value)}, not JSON") from fault


class _Pairs(list[tuple[str, Any]]):
    """A JSON object."""


def _biases(name: str, value: Any) -> Biases:
    found = _json(name, value)
    if not isinstance(found, _Pairs) or len(found) > MAX_BIASES:
        raise InvalidInput(
            f"{name} is {_shown(value)}; an object of at most {MAX_BIASES} token ids is accepted"
        )
    for token, bias in found:
        if not TOKEN_ID.fullmatch(token):
            raise InvalidInput(f"{name} names {_shown(token)}; a token id is accepted")
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            raise InvalidInput(f"{name} is {_shown(value)}; a bias is a number")
        _within(f"{name} of token {token}", bias, -MAX_BIAS, MAX_BIAS)
    if len(dict(found)) < len(found):
        raise InvalidInput(f"{name} is {_shown(value)}; each token may be named once")
    return tuple((int(token), float(bias)) for token, bias in found)


def _stops(name: str, value: Any) -> Stops:
    found = _json(name, value)
    is_list = isinstance(found, list) and not isinstance(found, _Pairs)
    if not is_list or not 0 < len(found) <= MAX_STOPS or not all(map(_may_stop, found)):
        raise InvalidInput(
            f"{name} is {_shown(value)}; a list of 1 to {MAX_STOPS} strings of 1 to "
            f"{MAX_STOP_CHARS} characters is accepted"
        )
    return tuple(found)


def _may_stop(one: Any) -> bool:
    return isinstance(one, str) and 0 < len(one) <= MAX_STOP_CHARS


def _shown(value: Any) -> str:
    """What was sent, short enough for an error."""
    return repr(value)[:80]


_READERS: dict[str, Any] = {
    str(int): _int,
    str(float): _float,
    str(bool): _bool,
    str(str): _str,
    str(Biases): _biases,
    str(Stops): _stops,
}
