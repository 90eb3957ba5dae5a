"""The encoder behind a conditional window.

Build workers make features; whenever the encoder is free, the window decides whether a batch
leaves; one encoder thread runs it, so that the loop goes on accepting and the next batch grows.
Windows of equal sound are one piece of work for as long as it is under way.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from typing import Any

from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Meters, Request, Wake
from python_backends.bridge.inbox import Event
from python_backends.encoder_window.clip import Clip, Member, State, Work
from python_backends.encoder_window.leaf import Encoded, Leaf
from python_backends.encoder_window.passes import PassBytes
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.encoder_window.workers import Built, Features, Passed, Workers
from python_backends.encoder_window.works import Works
from python_backends.errors import Cancelled, Overloaded, StageError
from python_backends.scheduling.bytes import BATCH
from python_backends.scheduling.stall import Streams
from python_backends.scheduling.window import ConditionalWindow, Release

LOOK_S = 0.002
"""How often an encoder that waits for streams to end looks whether they still run."""

PAUSES = 16
"""How many of its pauses an encoder remembers."""

FIRST_GUESS_S = 0.3
"""A batch's duration before one was measured."""

_GIVEN_UP = Cancelled("the turn was cancelled while it was being encoded")


class EncodeLoop:
    """Serves what its leaf can read. `clock` counts seconds; `streams` tells who runs elsewhere."""

    def __init__(
        self,
        settings: EncodeSettings,
        leaf: Leaf,
        clock: Callable[[], float] = time.monotonic,
        streams: Callable[[], Sequence[Streams]] = tuple,
        meters: Meters | None = None,
    ) -> None:
        self._settings = settings
        self._meters = meters or Meters()
        self._streams = streams
        self._stall = settings.stall_budget
        self._clock = clock
        self._leaf = leaf
        self._window: ConditionalWindow[Hashable, Work] = ConditionalWindow(
            max_batch=settings.max_batch, window_s=settings.window_ms / 1000, cap=settings.cap
        )
        self._bytes = PassBytes(settings)
        self.usage = self._bytes.usage
        self._works = Works(share=settings.share_identical)
        self._clips: set[Clip] = set()
        self._held: list[tuple[Clip, float]] = []
        """Clips that are encoded and wait for others to be, and since when."""
        self._paused_at = 0.0
        self._pauses: deque[tuple[float, float]] = deque(maxlen=PAUSES)
        """When the encoder waited for streams to end; those who were waiting are told."""
        self._running: Release[Hashable, Work] | None = None
        self._released_at = self._free_since = clock()
        self._batch_s = FIRST_GUESS_S

    def run(self, inbox: Inbox) -> None:
        """Serve events until Closed; its threads end with it."""
        many = self._settings.build_workers
        with Workers(self._leaf, inbox, self._clock, many) as self._workers:
            self._meter_slots()
            while all(map(self._serve, inbox.take(self._patience_s()))):
                self._release()
                self._meter_slots()

    def check_integrity(self) -> None:
        """Clips are open, everything not done is somewhere, and a pass alone has bytes."""
        self._window.check_integrity()
        assert self._running or not self.usage()[BATCH].used
        over = [clip for clip in self._clips if clip.is_over]
        held = [clip for clip, _ in self._held]
        assert all(clip in held for clip in over), "a clip was not answered"
        running = self._running.items if self._running else ()
        self._works.check_integrity(self._clips, self._window.waiting + len(running))

    def _serve(self, event: Event) -> bool:
        """Handle one event; False ends the loop."""
        match event:
            case Arrived(request):
                self._arrived(request)
            case CancelTurn(turn):
                self._drop_where(lambda clip: _GIVEN_UP if clip.request.turn == turn else None)
            case Wake(Built(work, outcome)):
                self._built(work, outcome)
            case Wake(Passed(batch, done)) if batch is self._running:
                self._encoded(batch, done.result())
            case Closed():
                return False
        return True

    def _arrived(self, request: Request) -> None:
        try:
            clip = self._admitted(request)
        except StageError as error:
            request.fail(error)
            return
        self._clips.add(clip)
        for member in clip.members:
            if not member.done:
                self._join(member)
        self._settle(clip)

    def _admitted(self, request: Request) -> Clip:
        if len(self._clips) >= self._settings.max_waiting:
            raise Overloaded(
                f"{len(self._clips)} requests are being encoded, and no more are taken",
                retry_after_ms=self._retry_after_ms(),
            )
        windows = self._leaf.windows(request)
        self._bytes.check(windows)
        return Clip.of(request, windows)

    def _retry_after_ms(self) -> int:
        """When the batches now ahead will have left."""
        batches = math.ceil(self._window.waiting / self._settings.max_batch) + 1
        return math.ceil(1000 * batches * self._batch_s)

    def _join(self, member: Member) -> None:
        """Wait for the same window if it is under way, or have it made."""
        member.joined_s = self._clock()
        work = self._works.join(member)
        if work is not None:
            self._window.build(work.bucket)
            self._workers.build(work)
            return
        self._meters.count("shared_total")
        if member.running:
            self._begin(member.clip, member.joined_s)

    def _built(self, work: Work, outcome: Features | StageError) -> None:
        if work.state is not State.BUILDING:
            return
        if isinstance(outcome, StageError):
            self._window.abandon(work.bucket)
            self._end([(work, outcome)])
            return
        work.built, work.state, work.ready_s = outcome.values, State.READY, self._clock()
        work.build_start_s, work.build_end_s = outcome.start_s, outcome.end_s
        self._window.ready(work, work.bucket, work.ready_s, self._bytes.cost(work.window))

    def _patience_s(self) -> float | None:
        """How long the loop may sleep: until a window ends while the encoder is free, or until it
        is time to look again who else is running."""
        deadline = None if self._running else self._window.next_deadline()
        if deadline is None:
            return None
        least = LOOK_S if self._settings.gather_ms else 0.0
        return max(least, deadline - self._clock())

    def _release(self) -> None:
        """Let a batch leave if one may. Clips whose callers are gone leave alone. Asking the server
        takes its time, so the loop asks while it waits for features or for a pass, and again about
        those next in line, whom it has not asked about lately."""
        if self._running is not None:
            return
        self._drop_deserted(
            {member.clip for member in self._works.members(*self._window.next_in_line())}
        )
        if self._window.oldest_since is None:
            self._paused_at = 0.0
            self._answer_held()
            self._drop_deserted(self._clips)
            return
        batch = self._next_batch(self._clock())
        if batch is not None:
            self._start(batch)
            self._drop_deserted(self._clips)

    def _next_batch(self, now: float) -> Release[Hashable, Work] | None:
        """What leaves now, with regard to the streams that would stand still meanwhile."""
        oldest = self._window.oldest_since
        if self._stall is None or oldest is None:
            return self._window.release(now, free_since=self._free_since)
        streams = self._streams()
        if self._held and self._stall.may_answer(now, self._held[0][1], streams):
            self._answer_held()
        ready = self._window.ready_count
        most = self._settings.max_batch
        if not self._held and not self._stall.may_start(now, oldest, ready, streams, most):
            self._paused_at = self._paused_at or now
            return None
        if self._paused_at:
            self._pauses.append((self._paused_at, now))
            self._paused_at = 0.0
        limit = self._stall.limit(streams, most)
        return self._window.release(now, free_since=self._free_since, limit=limit)

    def _start(self, batch: Release[Hashable, Work]) -> None:
        """Begin a pass, and write down meanwhile what was before it."""
        now = self._clock()
        self._running, self._released_at = batch, now
        self._bytes.begin([work.window for work in batch.items])
        self._workers.encode(batch)
        for work in batch.items:
            work.state = State.RUNNING
            for member in self._works.members(work):
                member.note_build()
                self._note_queue(member, batch, now)
                self._meters.observe("window_seconds", now - max(work.ready_s, member.joined_s))
                self._begin(member.clip, now)
        self._meters.count("releases_total", reason=str(batch.reason))

    def _begin(self, clip: Clip, now: float) -> None:
        """The first pass for it has started."""
        if not clip.begun:
            clip.begun = True
            self._meters.observe("queue_seconds", now - clip.request.arrived_ns / 1e9)

    def _meter_slots(self) -> None:
        """Members of the pass, members that are built or ready, and room that the pass has left."""
        running = len(self._running.items) if self._running else 0
        free = self._settings.max_batch - running
        self._meters.slots(running=running, waiting=self._window.waiting, free=free)

    def _note_queue(self, member: Member, batch: Release[Hashable, Work], now: float) -> None:
        arrived_s = member.clip.request.arrived_ns / 1e9
        about = {"reason": str(batch.reason), "members": len(batch.items), "bucket": batch.bucket}
        member.clip.note(member, "queue", arrived_s, now, **about)
        for start_s, end_s in self._pauses:
            if end_s > arrived_s:
                member.clip.note(member, "gather", max(start_s, arrived_s), end_s)

    def _encoded(self, batch: Release[Hashable, Work], encoded: Encoded) -> None:
        start_s, now = self._released_at, self._clock()
        self._running, self._free_since, self._batch_s = None, now, now - start_s
        self._bytes.end()
        self._meters.step(self._batch_s)
        if self._stall is not None:
            self._stall.learn(len(batch.items), encoded.device_s)
        for member in self._works.members(*batch.items):
            began_s = max(start_s, member.joined_s)
            member.clip.note(member, "compute", began_s, now, members=len(batch.items))
        self._end(zip(batch.items, encoded.outcomes, strict=True))

    def _end(self, outcomes: Iterable[tuple[Work, Any]]) -> None:
        """Give every result, or the StageError in its place, to all who wait for it."""
        for member in self._works.end(outcomes):
            if isinstance(member.result, StageError):
                self._give_up(member.clip, member.result)
            self._hold(member.clip)

    def _hold(self, clip: Clip) -> None:
        """Answer a clip, at once unless it pays to answer it together with others."""
        if not self._settings.gather_ms or clip.error is not None:
            self._settle(clip)
        elif clip.is_over and clip not in [held for held, _ in self._held]:
            self._held.append((clip, self._clock()))

    def _answer_held(self) -> None:
        held, self._held = self._held, []
        if held and self._stall is not None:
            self._stall.answered(len(held))
        for clip, since_s in held:
            for member in clip.members:
                clip.note(member, "gather", since_s, self._clock())
            self._settle(clip)

    def _drop_deserted(self, clips: Set[Clip]) -> None:
        self._drop_where(lambda clip: clip.request.gone if clip in clips else None)

    def _drop_where(self, why: Callable[[Clip], StageError | None]) -> None:
        """Give up clips that there is a reason for; members in the running batch are let go at its
        end."""
        for clip in list(self._clips):
            if (error := why(clip)) is not None:
                self._give_up(clip, error)
                self._settle(clip)

    def _give_up(self, clip: Clip, error: StageError) -> None:
        """Remember the first error, and take out what does not run yet."""
        clip.error = clip.error or error
        for member in clip.members:
            if member.done or member.running:
                continue
            deserted = self._works.leave(member)
            if deserted is not None:
                self._discard(deserted)
        self._window.drop(lambda work: work.state is State.DONE)

    def _discard(self, work: Work) -> None:
        """What nobody waits for is not encoded."""
        if work.state is State.BUILDING:
            self._window.abandon(work.bucket)
        work.state = State.DONE

    def _settle(self, clip: Clip) -> None:
        """Answer a clip that is over, once."""
        if clip.is_over and clip in self._clips:
            self._clips.discard(clip)
            clip.answer(self._leaf)
