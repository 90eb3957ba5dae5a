"""What an ear tells of its caller. `turn` is the call's name and the number of the turn of speech
in it; times are ms of the caller's sound."""

import json
import uuid
from dataclasses import asdict, dataclass

from python_backends.errors import StageError
from python_backends.scheduling.endpoint import EndReason


@dataclass(frozen=True)
class SpeechStarted:
    """Somebody speaks, since `at_ms`."""

    turn: str
    at_ms: int


@dataclass(frozen=True)
class Partial:
    """What was said so far; more may follow, and change it."""

    turn: str
    text: str


@dataclass(frozen=True)
class SpeechEnded:
    """The turn is over; its last speech was at `at_ms`, and so long was waited for more."""

    turn: str
    at_ms: int
    waited_ms: int
    reason: EndReason


@dataclass(frozen=True)
class Transcript:
    """What was said in it."""

    turn: str
    text: str


@dataclass(frozen=True)
class NoSpeech:
    """There were no words in it; without a turn: in the whole call."""

    turn: str = ""


@dataclass(frozen=True)
class NotHeard:
    """It could not be transcribed; the call goes on."""

    turn: str
    error: StageError


News = SpeechStarted | Partial | SpeechEnded | Transcript | NoSpeech | NotHeard

TYPES: dict[type, str] = {
    SpeechStarted: "speech_started",
    Partial: "partial",
    SpeechEnded: "speech_ended",
    Transcript: "transcript",
    NoSpeech: "no_speech",
}


def to_json(news: News) -> str:
    """As an EVENT: an object with `type`."""
    if isinstance(news, NotHeard):
        return failed(news.turn, news.error)
    return json.dumps({"type": TYPES[type(news)], **asdict(news)}, ensure_ascii=False)


def failed(turn: str, error: StageError) -> str:
    """As an EVENT: a turn that could not be served, in the words of its error."""
    return json.dumps({"type": "failed", "turn": turn, "error": error.to_wire()})


def unique(turn: str) -> str:
    """A request id for work on a turn, that no other work of anybody has."""
    return f"{turn}~{uuid.uuid4().hex[:12]}"
