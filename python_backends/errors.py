"""Everything raised on purpose, and how it travels.

* StageError
  x InvalidInput    the caller's fault, do not retry      -> INVALID_ARG
  x Overloaded      no room now; says when to retry       -> UNAVAILABLE
  x DeadlineMissed  could not be answered in time         -> UNAVAILABLE
  x Cancelled       the caller went away                  -> CANCELLED
  x StageFailed     another stage answered with an error  -> INTERNAL

A gRPC stream carries no status code, so an error travels as text with a fixed grammar::

    [tristage code=OVERLOADED stage=think reason=queue retry_after_ms=250 turn=a1] human sentence

which `parse` finds anywhere in a string, whatever servers and clients wrapped around it.
"""

import re
from typing import ClassVar


class StageError(Exception):
    """An expected failure of one request. `stage` and `turn` are filled in where they are known.

    `reason` is one word for programs, where a code has several: queue, caller, deadline, bytes,
    stage or draining of what is Overloaded; ended of a StageFailed whose process has ended.
    """

    code: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        stage: str = "",
        turn: str = "",
        reason: str = "",
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.stage = stage
        self.turn = turn
        self.reason = reason
        self.retry_after_ms = retry_after_ms

    def at(self, stage: str, turn: str) -> "StageError":
        """Name where it happened, unless a deeper stage already did."""
        self.stage = self.stage or stage
        self.turn = self.turn or turn
        return self

    def to_wire(self) -> str:
        """The error as one line of text."""
        fields = {"code": self.code, "stage": self.stage, "reason": self.reason, "turn": self.turn}
        if self.retry_after_ms is not None:
            fields["retry_after_ms"] = str(self.retry_after_ms)
        head = " ".join(f"{key}={_plain(value)}" for key, value in fields.items() if value)
        return f"[tristage {head}] {told(self.message)}"


class InvalidInput(StageError):
    """What the caller sent can never be served; the message says what is accepted."""

    code = "INVALID_INPUT"


class Overloaded(StageError):
    """No room now; `retry_after_ms` says when to come back."""

    code = "OVERLOADED"


class DeadlineMissed(StageError):
    """Could not be answered in the time that was allowed."""

    code = "DEADLINE_MISSED"


class Cancelled(StageError):
    """The caller cancelled, or went away."""

    code = "CANCELLED"


class StageFailed(StageError):
    """A stage, or a model behind it, answered with an error or with nothing."""

    code = "STAGE_FAILED"


_KINDS: dict[str, type[StageError]] = {
    kind.code: kind for kind in (InvalidInput, Overloaded, DeadlineMissed, Cancelled, StageFailed)
}
_FIELD = r"\w+=[^\s\[\]]+"
_WIRE = re.compile(rf"\[tristage ({_FIELD}(?: {_FIELD})*)\]([^\n]*)")
LONGEST_TOLD = 600
LONGEST_READ = 10_000
_TRACE = re.compile(r"\s*(?:Traceback \(most recent call last\)|\bAt:\s+/|File \"/).*", re.DOTALL)
"""How Python's tracebacks begin, and those of Triton's stub."""

_PATH = re.compile(r"(?<![\w.:/~-])(?:~|\.{1,2})?(?:/[\w.@+~%-]+){2,}/?")
_RETRY = re.compile(r"[0-9]{1,9}")


def parse(text: str) -> StageError | None:
    """The StageError written anywhere in `text`, or None when there is none."""
    found = _WIRE.search(text)
    if found is None:
        return None
    fields = dict(pair.split("=", 1) for pair in found.group(1).split())
    kind = _KINDS.get(fields.get("code", ""), StageError)
    retry = fields.get("retry_after_ms", "")
    return kind(
        found.group(2).strip(),
        stage=fields.get("stage", ""),
        turn=fields.get("turn", ""),
        reason=fields.get("reason", ""),
        retry_after_ms=int(retry) if _RETRY.fullmatch(retry) else None,
    )


def from_text(text: str, *, stage: str = "", turn: str = "") -> StageError:
    """`parse`, or a StageFailed around text of foreign origin."""
    known = parse(text)
    return known or StageFailed(told(text) or "no reason given", stage=stage, turn=turn)


def told(text: str) -> str:
    """What callers may read of a message, perhaps another's: one line of bounded length, without
    the traceback that it may end with and without paths of files."""
    line = _PATH.sub("<path>", " ".join(_TRACE.sub("", text[:LONGEST_READ]).split()))
    return line if len(line) <= LONGEST_TOLD else f"{line[:LONGEST_TOLD]}..."


def _plain(value: str) -> str:
    """A field value without blanks or brackets, so that the grammar stays parseable."""
    return re.sub(r"[\s\]\[]", "_", value)[:128]
