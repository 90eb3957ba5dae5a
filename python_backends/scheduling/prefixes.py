"""Whose prompts need not be computed again: which KV prefixes are stored, of which session."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

Tokens = Sequence[int]
COMPUTED = 2
"""Tokens of a prompt that are never reused: see `ContinuousBatch`."""

EVERYBODY = ""
"""The session of what all prompts begin with."""


@dataclass(eq=False)
class Prefix:
    """The KV of `tokens`, stored under `key`; used by `users` prompts that wait to be restored."""

    key: int
    session: str
    tokens: tuple[int, ...]
    users: int = 0
    is_stored: bool = False
    """The engine has written it."""

    @property
    def is_free(self) -> bool:
        """It may be dropped."""
        return self.is_stored and not self.users


@dataclass(frozen=True)
class Match:
    """The first `length` tokens of a prompt are those of a stored prefix."""

    prefix: Prefix
    length: int


@dataclass
class Prefixes:
    """One prefix a session, the least recently used ones given up beyond `byte_limit` bytes.

    A session is only a hint: what is reused has been compared token by token.
    """

    byte_limit: int
    token_bytes: int
    """Bytes of KV a token takes."""

    least: int = 16
    """Fewer tokens than this are computed again as fast as they are fetched."""

    _sessions: "OrderedDict[str, Prefix]" = field(default_factory=OrderedDict)
    _dropped: list[Prefix] = field(default_factory=list)
    _keys: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def held_bytes(self) -> int:
        """What the store holds, those included that are still used though given up, but not those
        that it will forget with the next command."""
        held = [*self._sessions.values(), *(one for one in self._dropped if not one.is_free)]
        return sum(len(prefix.tokens) for prefix in held) * self.token_bytes

    def match(self, session: str, prompt: Tokens) -> Match | None:
        """What can be reused for a prompt, of its session or of everybody; its last two tokens are
        always computed. To be followed by `release`."""
        known = [self._sessions.get(name) for name in (session, EVERYBODY)]
        stored = [prefix for prefix in known if prefix is not None and prefix.is_stored]
        matches = [Match(prefix, _common(prefix.tokens, prompt[:-COMPUTED])) for prefix in stored]
        best = max(matches, key=lambda match: match.length, default=None)
        if best is None or best.length < self.least:
            return None
        self._sessions.move_to_end(best.prefix.session)
        best.prefix.users += 1
        return best

    def release(self, match: Match) -> None:
        """The prefix has been restored, or is not wanted any more."""
        match.prefix.users -= 1

    def keep(self, session: str, tokens: Tokens) -> Prefix | None:
        """Make room for a prefix that is to be stored now; None where there is none, or where it is
        stored already. It takes the place of the session's last one."""
        size = len(tokens) * self.token_bytes
        if len(tokens) < self.least or size > self.byte_limit:
            return None
        last = self._sessions.get(session)
        if last is not None and last.tokens == tuple(tokens):
            return None
        self.forget(session)
        while self.held_bytes + size > self.byte_limit and self._sessions:
            self.forget(next(iter(self._sessions)))
        if self.held_bytes + size > self.byte_limit:
            return None
        prefix = self._sessions[session] = Prefix(next(self._keys), session, tuple(tokens))
        return prefix

    def forget(self, session: str) -> None:
        """Give up what is stored of a session."""
        prefix = self._sessions.pop(session, None)
        if prefix is not None:
            self._dropped.append(prefix)

    def dropped(self) -> list[int]:
        """Keys that the store may forget now: given up, written and used by nobody; told once."""
        free = [one for one in self._dropped if one.is_free]
        self._dropped = [one for one in self._dropped if not one.is_free]
        return [one.key for one in free]

    def lose(self, unwritten: Sequence[Prefix]) -> None:
        """Nothing that is stored can be relied on any more; some will never be written, or hardly,
        which the store is told to forget like any other."""
        for session in list(self._sessions):
            self.forget(session)
        for prefix in unwritten:
            prefix.is_stored = True

    def check_integrity(self) -> None:
        """The store holds what it may, every prefix under a key of its own."""
        held = [*self._sessions.values(), *self._dropped]
        assert self.held_bytes <= self.byte_limit
        assert len({prefix.key for prefix in held}) == len(held)
        assert all(prefix.users >= 0 for prefix in held)
        assert all(prefix.session == session for session, prefix in self._sessions.items())


def _common(one: Tokens, other: Tokens) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
