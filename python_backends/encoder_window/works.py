"""Who waits for which piece of work: identical windows for one, each other window for its own."""

from collections.abc import Hashable, Iterable
from typing import Any

from python_backends.encoder_window.clip import Clip, Member, State, Work
from python_backends.scheduling.shared import Shared


class Works:
    """All work under way. With `share`, windows of one identity are one piece of work."""

    def __init__(self, *, share: bool) -> None:
        self._share = share
        self._shared: Shared[Hashable, Member] = Shared()

    def join(self, member: Member) -> Work | None:
        """`member` waits for its window from now on; the work, if it has to be begun for it."""
        identity = member.window.identity if self._share else None
        key: Hashable = object() if identity is None else identity
        if self._shared.join(key, member):
            member.work = Work(member.window, key)
            return member.work
        member.work = self._shared.members(key)[0].work
        return None

    def leave(self, member: Member) -> Work | None:
        """`member` is done without a result; the work, if nobody waits for it any more."""
        member.done = True
        work = member.work
        return work if work is not None and self._shared.leave(work.key, member) else None

    def end(self, outcomes: Iterable[tuple[Work, Any]]) -> list[Member]:
        """Give each outcome to all who wait for it: these, with all work marked as done before."""
        ended = []
        for work, outcome in outcomes:
            work.state, work.built = State.DONE, None
            for member in self._shared.finish(work.key):
                member.done, member.result = True, outcome
                ended.append(member)
        return ended

    def members(self, *works: Work) -> list[Member]:
        """Everybody who waits for one of `works`."""
        return [member for work in works for member in self._shared.members(work.key)]

    def check_integrity(self, clips: Iterable[Clip], under_way: int) -> None:
        """All that is not done in `clips` waits for one of so many pieces of work."""
        self._shared.check_integrity()
        assert self._shared.under_way == under_way
        for clip in clips:
            for member in clip.members:
                is_waiting = member.work is not None and member in self.members(member.work)
                assert member.done is not is_waiting, "a window waits for nothing, or for ever"
