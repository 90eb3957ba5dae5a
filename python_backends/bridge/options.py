"""What a caller may ask for: the request parameters of a turn, parsed once, strictly.

Parameters travel unchanged through an ensemble, so every stage parses all of them and reads its own.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from python_backends.errors import InvalidInput

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class Options:
    """Request parameters. Real numbers may also come as strings, since gRPC parameters had no double."""

    max_tokens: int = 64
    """Tokens of the answer, 1 to 256."""

    temperature: float = 0.0
    """Of the answer's words; below 0.001 is greedy. 0 to 2."""

    speech_temperature: float = 0.3
    """Of durations and pitch, 0 to 2."""

    seed: int = 0
    """Of every random draw of the turn."""

    steps: int = 0
    """Flow steps, 1 to 32; 0 takes the stage's default."""

    solver: str = ""
    """"euler" or "midpoint"; empty takes the stage's default."""

    stream: bool = True
    """False: the answer is one piece and one chunk."""

    min_frames: int = 0
    """Mel frames an encoder window is padded to at least, 0 to 3000."""

    deadline_ms: int = 0
    """Reserved for admission; 0 is none."""

    def __post_init__(self) -> None:
        _within("max_tokens", self.max_tokens, 1, 256)
        _within("temperature", self.temperature, 0, 2)
        _within("speech_temperature", self.speech_temperature, 0, 2)
        _within("seed", self.seed, 0, MAX_SEED)
        _within("steps", self.steps, 0, 32)
        _within("min_frames", self.min_frames, 0, 3000)
        _within("deadline_ms", self.deadline_ms, 0, 3_600_000)
        if self.solver not in ("", "euler", "midpoint"):
            raise InvalidInput(f"solver {self.solver!r} is neither 'euler' nor 'midpoint'")

    @classmethod
    def parse(cls, parameters: Mapping[str, Any]) -> "Options":
        """Options from request parameters; InvalidInput names an unknown key or a wrong value."""
        kinds = {field.name: field.type for field in fields(cls)}
        unknown = sorted(key for key in parameters if key not in kinds)
        if unknown:
            raise InvalidInput(f"unknown parameter {unknown[0]!r}; known: {', '.join(kinds)}")
        return cls(**{key: _READERS[str(kinds[key])](key, parameters[key]) for key in parameters})

    @classmethod
    def from_json(cls, parameters: str) -> "Options":
        """Options from the JSON object that Triton hands to a Python backend."""
        found = json.loads(parameters) if parameters else {}
        return cls.parse({key: value for key, value in found.items() if not _internal(key)})


def _internal(key: str) -> bool:
    """Keys the server itself adds."""
    return key.startswith("triton_") or key in ("binary_data_output", "headers")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise InvalidInput(f"{name} is {value}; {low} to {high} is accepted")


def _int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidInput(f"{name} is {value!r}, not an integer")
    try:
        return int(value)
    except ValueError as fault:
        raise InvalidInput(f"{name} is {value!r}, not an integer") from fault


def _float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidInput(f"{name} is {value!r}, not a number")
    try:
        return float(value)
    except ValueError as fault:
        raise InvalidInput(f"{name} is {value!r}, not a number") from fault


def _bool(name: str, value: Any) -> bool:
    known = {True: True, False: False, "true": True, "false": False}
    if value not in known or isinstance(value, int) and not isinstance(value, bool):
        raise InvalidInput(f"{name} is {value!r}; true or false is accepted")
    return known[value]


def _str(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {value!r}, not a string")
    return value


_READERS: dict[str, Any] = {
    str(int): _int,
    str(float): _float,
    str(bool): _bool,
    str(str): _str,
}
