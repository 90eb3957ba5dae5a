"""Who serves in a cluster now, told to proxies (placement file) and people (state file, events)."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from deploy.cluster.events import Event, Kind
from deploy.cluster.files import ClusterState, ServerState, placement, state_path, write_json
from deploy.cluster.member import Member
from deploy.errors import ServerFailed
from deploy.plan import Plan
from deploy.processes import start_time

Progress = Callable[[str], None]
Hear = Callable[[Event], None]


class Roster:
    """The members of a cluster; every change is published. Used by many threads. `hear`, where it
    is given, is told of events in place of `progress`."""

    def __init__(
        self, plan: Plan, name: str, out: Path, progress: Progress, hear: Hear | None = None
    ) -> None:
        self.events: list[Event] = []
        self.lock = threading.RLock()
        self._plan = plan
        self._state_file = state_path(out, name)
        self._progress = progress
        self._hear = hear or (lambda event: progress(f"{event.server}: {event.what}"))
        self._orders: list[Progress] = []
        self._members: dict[str, Member] = {}
        self._elsewhere: tuple[ServerState, ...] = ()
        self._apart: frozenset[str] = frozenset()
        self._placement_file: Path | None = None
        self._control: Path | None = None

    def open(
        self,
        placement_file: Path,
        control: Path,
        apart: frozenset[str],
        elsewhere: tuple[ServerState, ...],
    ) -> None:
        """Begin to publish: where the stages in `apart` are, `elsewhere` among it."""
        with self.lock:
            self._placement_file, self._control = placement_file, control
            self._apart, self._elsewhere = apart, elsewhere
            self.publish()

    def close(self) -> list[Member]:
        """Publish nothing any more; the members, who are to be ended."""
        with self.lock:
            members, self._members = list(self._members.values()), {}
            if self._placement_file is not None:
                self._state_file.unlink(missing_ok=True)
            self._placement_file = None
            return members

    @property
    def members(self) -> list[Member]:
        """Those of this machine, in the order they came."""
        with self.lock:
            return list(self._members.values())

    @property
    def elsewhere(self) -> tuple[ServerState, ...]:
        return self._elsewhere

    def get(self, name: str) -> Member | None:
        """A member by its name."""
        with self.lock:
            return self._members.get(name)

    def add(self, member: Member) -> None:
        """It gets turns from now on. ServerFailed when the cluster is being stopped."""
        with self.lock:
            if self._placement_file is None:
                raise ServerFailed("the cluster is being stopped")
            self._members[member.replica.name] = member
            self.publish()

    def remove(self, member: Member) -> None:
        """It is not asked any more."""
        with self.lock:
            self._members.pop(member.replica.name, None)
            self.publish()

    def tell(self, member: Member, kind: Kind, what: str) -> None:
        """Something happened to a member."""
        name = member.replica.name
        event = Event(name, kind, what)
        with self.lock:
            self.events.append(event)
            try:
                self.publish()
            except OSError as fault:  # a full disk must not end the supervision
                self._say(f"{name}: the placement could not be published: {fault}")
        if kind != "ready":  # its server has said so
            with suppress(OSError):
                self._hear(event)
            _pass_on(f"{name}: {what}", self._orders)

    def progress_of(self, name: str) -> Progress:
        """Where a member's server says how far its start is."""
        return lambda line: self._say(f"{name}: {line}")

    @contextmanager
    def heard_by(self, listener: Progress) -> Iterator[None]:
        """One more who is told what happens, inside the block."""
        self._orders.append(listener)
        try:
            yield
        finally:
            self._orders.remove(listener)

    def _say(self, line: str) -> None:
        _pass_on(line, [self._progress, *self._orders])

    def publish(self) -> None:
        """Bring both files up to date."""
        with self.lock:
            if self._placement_file is None:
                return
            state = self.state
            write_json(self._placement_file, placement(self._apart, state.servers))
            state.write(self._state_file)

    @property
    def state(self) -> ClusterState:
        """What `python -m deploy status` reads."""
        started = start_time(os.getpid())
        assert started is not None
        return ClusterState(
            plan=self._plan.name,
            path=str(self._plan.path.resolve()),
            front=self._plan.front,
            pid=os.getpid(),
            started=started,
            control=str(self._control or ""),
            servers=(*(member.state for member in self.members), *self._elsewhere),
        )


def _pass_on(line: str, listeners: Sequence[Progress]) -> None:
    for listener in list(listeners):
        with suppress(OSError):  # a terminal that is gone must not end the supervision
            listener(line)
