"""The front door: every turn that is let in is a task of one asyncio loop."""

import asyncio
import math
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Meters, Request, Wake
from python_backends.bridge.events import now_ns
from python_backends.bridge.leaving import Leaving
from python_backends.bridge.tensors import text
from python_backends.errors import Cancelled, DeadlineMissed, StageError, StageFailed
from python_backends.front_door.entry import Entry
from python_backends.front_door.history import Histories
from python_backends.front_door.settings import DoorSettings
from python_backends.front_door.traces import Traces
from python_backends.front_door.turn import Turn
from python_backends.ordering.exchange import history_json
from python_backends.peer import Peer
from python_backends.walking.asking import Asking
from python_backends.walking.route import Route
from python_backends.walking.stages import Find, of_this_server
from python_backends.walking.versions import Versions
from python_backends.walking.walk import walk
from python_backends.walking.ways import Ways

LOOK_S = 0.25
"""How often figures are told; a turn that comes to wait meanwhile may leave so late."""


class Door:
    """Lets turns in and brings them through the stages; who cancels or leaves stops them all.

    `route`: instead of asking the server for the ensemble's; `find`: see `Stages`; `traces`: is
    told of every turn that was let in or waited.
    """

    def __init__(
        self,
        settings: DoorSettings,
        address: str,
        *,
        route: Route | None = None,
        find: Find = of_this_server,
        meters: Meters | None = None,
        traces: Traces | None = None,
        versions: Versions | None = None,
    ) -> None:
        self.versions = versions or Versions.of_environment()
        self._settings = settings
        self._address = address
        self._route = route
        self._find = find
        self._meters = meters or Meters()
        self._traces = traces
        self._turns: dict[Turn, asyncio.Task[None] | None] = {}
        """Everybody who is here and may still be cancelled; None while they wait."""

        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped: StageError | None = None
        """What everybody is ended with who is still here."""

        self._clock = time.monotonic
        self._entry = Entry(settings, self._clock)
        self._histories = Histories(
            most=settings.max_sessions,
            most_chars=settings.session_chars,
            keep_s=settings.session_s,
        )

    def run(self, inbox: Inbox) -> None:
        """Serve until closed."""
        try:
            asyncio.run(self._serve(inbox))
        finally:
            self._entry.close()

    async def _serve(self, inbox: Inbox) -> None:
        self._report = lambda ended: inbox.put(Wake(ended))
        self._peer = Peer(self._address)
        self._watching: asyncio.Task[None] | None = None
        self._ways = Ways(
            self._peer,
            self._settings.ensemble,
            hold_s=self._settings.hold_ms / 1000,
            begin=self._watch,
            route=self._route,
            find=self._find,
            meters=self._meters,
            versions=self.versions,
        )
        self._leaving: Leaving[Turn] = Leaving(lambda news: inbox.put(Wake(news)))
        looking = asyncio.create_task(self._look_again())
        looking.add_done_callback(self._report)
        try:
            async for event in inbox.events():
                match event:
                    case Arrived(request):
                        self._arrived(request)
                    case CancelTurn(turn):
                        self._stop(turn)
                    case Wake(Turn() as turn):
                        self._drop_out(turn, "the caller left while the turn waited")
                    case Wake(asyncio.Task() as ended) if not ended.cancelled():
                        ended.result()  # a bug, which is the whole loop's
                    case Wake(Exception() as fault):
                        raise fault
                    case Wake():
                        pass
                    case Closed():
                        self._stopped = Cancelled("the server is being stopped")
                        return
        finally:
            self._stopped = self._stopped or StageFailed("the front door failed while serving")
            looking.cancel()
            await self._close(self._stopped)

    async def _close(self, error: StageError) -> None:
        """End everybody with this error; nobody begins any more."""
        self._entry.close()
        for turn, task in list(self._turns.items()):
            if task is not None:
                task.cancel()
            else:
                self._leave(turn, error)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        try:
            await self._peer.close()
        finally:
            await asyncio.to_thread(self._leaving.close)

    def offer(self, request: Request) -> None:
        """Let a turn wait, or raise why not. For any thread; the loop is told of it as Arrived."""
        self._entry.offer(request)

    def drain(self) -> None:
        """Take no more turns, and serve those that are here. For any thread."""
        self._entry.close()

    def _arrived(self, request: Request) -> None:
        turn = self._entry.take(request)
        if turn is None:  # it was offered to the door before this one
            request.fail(StageFailed("the front door has been restarted"))
        elif self._entry.waits(turn):
            self._turns[turn] = None
            self._leaving.watch(turn)
        self._let_in()

    def _let_in(self) -> None:
        """Begin the turns that may; those whose time has passed meanwhile leave."""
        if self._stopped is not None:
            return
        for turn in self._entry.late():
            allowed_ms = turn.request.options.deadline_ms
            late = f"it waited, and cannot be answered within {allowed_ms} ms any more"
            self._leave(turn, DeadlineMissed(late))
        for turn in self._entry.begin():
            turn.began_ns = now_ns()
            turn.is_traced = self._traces is not None
            self._meters.observe("queue_seconds", (turn.began_ns - turn.request.arrived_ns) / 1e9)
            task = asyncio.create_task(self._turn(turn))
            self._turns[turn] = task
            self._leaving.watch(turn)
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, turn))

    def _ended(self, turn: Turn, task: "asyncio.Task[None]") -> None:
        """A turn is over; one that was cancelled before its task first ran is answered here."""
        self._tasks.discard(task)
        self._leave(turn, Cancelled("the turn was cancelled"))
        self._let_in()

    def _leave(self, turn: Turn, error: StageError) -> None:
        """It is here no more; with this error, unless it was answered."""
        self._forget(turn)
        self._entry.end(turn, served=False)
        turn.request.fail(error)
        if self._traces is not None:
            self._traces.offer(turn.told(error.code))

    def _forget(self, turn: Turn) -> None:
        self._turns.pop(turn, None)
        self._leaving.forget(turn)

    def _stop(self, wanted: str) -> None:
        """Cancel every open turn that its caller named `wanted`."""
        for turn in [one for one in self._turns if one.request.turn == wanted]:
            self._drop_out(turn, "the turn was cancelled while it waited")

    def _drop_out(self, turn: Turn, waited: str) -> None:
        """Cancel a turn, if it is here; with these words if it has not begun."""
        task = self._turns.get(turn)
        if task is not None:
            task.cancel()
        elif turn in self._turns:
            self._leave(turn, Cancelled(waited))

    async def _look_again(self) -> None:
        """Those who wait are looked after, and figures are told."""
        while True:
            await asyncio.sleep(min(LOOK_S, max(0.0, self._entry.late_in_s())))
            self._let_in()
            running, waiting = self._entry.count()
            free = self._settings.max_turns - running
            self._meters.slots(running=running, waiting=waiting, free=free)

    async def _turn(self, turn: Turn) -> None:
        """Bring a turn to its end, by the versions that serve when it begins."""
        with self.versions.pinned() as turn.serving:
            await self._bring(turn)

    async def _bring(self, turn: Turn) -> None:
        """To its end; whatever else ends it, every stage is told to drop it."""
        request = turn.request
        error: StageError = StageFailed("the front door failed")
        try:
            left_s = turn.deadline_s - self._clock()
            async with asyncio.timeout(None if math.isinf(left_s) else left_s):
                await self._walk(turn)
            request.finish()
            turn.failure = ""
            self._entry.end(turn, served=True)
            return
        except TimeoutError:
            error = self._missed(turn)
        except asyncio.CancelledError:
            error = self._stopped or Cancelled("the turn was cancelled")
        except StageError as fault:
            error = fault
        finally:
            self._remember(turn)
            self._forget(turn)
            if request.is_open:
                turn.failure = error.code
                await self._drop(turn)
                error.turn = request.turn
                request.fail(error)

    def _watch(self, watching: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        self._watching = asyncio.create_task(watching)
        self._watching.add_done_callback(self._report)
        return self._watching

    async def _walk(self, turn: Turn) -> None:
        route, stages = await self._ways.get()
        given = turn.inputs()
        if turn.in_words:
            route, name = route.from_words()
            given[name] = text(turn.heard)
        if turn.remembered and (said := self._histories.of(turn.session, self._clock())):
            given["HISTORY"] = text(history_json(said))
        asking = Asking(
            self._peer,
            stages,
            turn=turn.id,
            parameters=turn.parameters,
            silence_s=self._settings.no_progress_ms / 1000,
            hold_s=self._settings.hold_ms / 1000,
            refused=self._entry.stage_is_full,
            serving=turn.serving,
        )
        await walk(route, asking.ask, given, turn.send)

    def _remember(self, turn: Turn) -> None:
        if turn.remembered:
            self._histories.add(turn.session, turn.exchange.utterances, self._clock())

    def _missed(self, turn: Turn) -> DeadlineMissed:
        return DeadlineMissed(f"not answered within {turn.request.options.deadline_ms} ms")

    async def _drop(self, turn: Turn) -> None:
        """Tell all stages that are there."""
        stages, names = self._ways.stages, turn.serving.names(self._settings.stage_names)
        up = [name for name in names if stages is None or stages.is_up(name)]
        await self._peer.cancel(turn.id, up)
