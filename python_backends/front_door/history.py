"""Conversations that the front door remembers for callers who send SESSION_ID and no HISTORY."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from python_backends.ordering.exchange import keep_last
from python_backends.ordering.prompt import Utterance


@dataclass
class _Conversation:
    touched_s: float
    lines: list[Utterance] = field(default_factory=list)


class Histories:
    """At most `most` conversations of `most_chars` characters; one that has rested for `keep_s` is
    forgotten, and so is the longest unused where there are too many, and the oldest lines of one
    that has become too long. Times are seconds of any clock."""

    def __init__(self, *, most: int, most_chars: int, keep_s: float) -> None:
        self._most = most
        self._most_chars = most_chars
        self._keep_s = keep_s
        self._known: OrderedDict[str, _Conversation] = OrderedDict()

    def of(self, session: str, now: float) -> list[Utterance]:
        """What has been said, oldest first; nothing of a session that is not known."""
        self._forget(now)
        known = self._known.get(session)
        return list(known.lines) if known else []

    def add(self, session: str, lines: Sequence[Utterance], now: float) -> None:
        """Something more has been said."""
        if not lines:
            return
        known = self._known.setdefault(session, _Conversation(now))
        known.lines += lines
        known.touched_s = now
        keep_last(known.lines, self._most_chars)
        self._known.move_to_end(session)
        self._forget(now)

    def __len__(self) -> int:
        return len(self._known)

    def check_integrity(self) -> None:
        """Bounds hold, and the longest unused comes first."""
        assert len(self._known) <= self._most
        touched = [one.touched_s for one in self._known.values()]
        assert touched == sorted(touched)
        for known in self._known.values():
            assert len(known.lines) == 1 or _chars(known.lines) <= self._most_chars

    def _forget(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known.values()))
            if len(self._known) <= self._most and now - oldest.touched_s < self._keep_s:
                return
            self._known.popitem(last=False)


def _chars(lines: Sequence[Utterance]) -> int:
    return sum(len(line.text) for line in lines)
