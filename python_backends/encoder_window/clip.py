"""A request in progress: its windows, the work they wait for, and the one answer made of them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from python_backends.bridge import Request
from python_backends.encoder_window.leaf import Leaf, Window
from python_backends.errors import StageError


class State(Enum):
    """Where a piece of work stands."""

    BUILDING = auto()
    READY = auto()
    RUNNING = auto()
    DONE = auto()


@dataclass(eq=False)
class Work:
    """One window on its way through the encoder, for everybody who sent the same."""

    window: Window
    key: Hashable
    state: State = State.BUILDING
    built: Any = None
    """Features, between build and pass."""

    build_start_s: float = 0.0
    build_end_s: float = 0.0
    ready_s: float = 0.0
    """When the loop knew that its features were ready."""

    @property
    def bucket(self) -> Hashable:
        """The shape bucket."""
        return self.window.bucket


@dataclass(eq=False)
class Member:
    """One window of a clip. Silent ones are done without any work."""

    clip: "Clip"
    number: int
    window: Window
    done: bool = False
    work: Work | None = None
    joined_s: float = 0.0
    """When it began to wait for its work."""

    result: Any = None

    @property
    def running(self) -> bool:
        """It is in a pass, which cannot be interrupted."""
        return self.work is not None and self.work.state is State.RUNNING

    def note_build(self) -> None:
        """Add the part of the build that it has waited for; who joined later waited for none."""
        assert self.work is not None
        began_s, ended_s = max(self.work.build_start_s, self.joined_s), self.work.build_end_s
        if began_s <= ended_s:
            self.clip.note(self, "build", began_s, ended_s)


@dataclass(eq=False)
class Clip:
    """One request. It is over when all its members are done."""

    request: Request
    members: list[Member] = field(default_factory=list)
    error: StageError | None = None
    begun: bool = False
    """A pass has been started with a window of it."""

    spans: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request, windows: Sequence[Window]) -> "Clip":
        """A clip whose silent windows are already done."""
        clip = cls(request)
        for number, window in enumerate(windows):
            clip.members.append(Member(clip, number, window, done=window.silent))
        return clip

    @property
    def is_over(self) -> bool:
        """Nothing of it is being built, waits or runs."""
        return all(member.done for member in self.members)

    def note(self, member: Member, what: str, start_s: float, end_s: float, **more: Any) -> None:
        """Add a span of one of its windows to EVENTS."""
        start_ns, end_ns = int(start_s * 1e9), int(end_s * 1e9)
        self.spans.append(self.request.span(what, start_ns, end_ns, window=member.number, **more))

    def answer(self, leaf: Leaf) -> None:
        """End the request, with the outputs or the error."""
        if self.error is not None:
            self.request.fail(self.error)
            return
        windows = [member.window for member in self.members]
        outputs = leaf.outputs(windows, [member.result for member in self.members])
        self.request.finish({**outputs, "EVENTS": self.request.with_events(*self.spans)})
