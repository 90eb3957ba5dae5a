"""Every call on the line, on one asyncio loop: of `listen`, and of `live`."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from python_backends.bridge import (
    Arrived,
    CancelTurn,
    Closed,
    Inbox,
    Meters,
    Request,
    Wake,
    log_fault,
)
from python_backends.bridge.events import now_ns
from python_backends.bridge.leaving import Leaving
from python_backends.errors import (
    Cancelled,
    DeadlineMissed,
    InvalidInput,
    Overloaded,
    StageError,
    StageFailed,
)
from python_backends.listening.call import Call, Line, owner_of
from python_backends.listening.ear import Ear, Transcribe
from python_backends.listening.news import unique
from python_backends.listening.settings import ListenSettings
from python_backends.listening.tape import Floats
from python_backends.listening.vad import Deaf, Judged, Left, Vad
from python_backends.peer import Outputs, Peer
from python_backends.scheduling.sequences import Refused, Sequences
from python_backends.versions import Serving
from python_backends.walking.asking import Asking
from python_backends.walking.route import Route
from python_backends.walking.stages import Find, of_this_server
from python_backends.walking.versions import Versions
from python_backends.walking.walk import walk
from python_backends.walking.ways import Ways

LOOK_S = 0.1
"""How often it is looked for those who have gone quiet."""

RETRY_AFTER_MS = 1000
CLOSED = '{"type": "closed"}'

WHY = {
    "no_start": "no call is under way in sequence {key}: it has not begun, or is over; the first "
    "chunk needs sequence_start",
    "taken": "sequence {key} is the call of another request id; choose another sequence id",
}


class Calls:
    """`make_call` is what answers a caller; `Call` tells what was heard."""

    def __init__(
        self,
        settings: ListenSettings,
        address: str,
        *,
        make_call: Callable[[Request, Line], Call] | None = None,
        meters: Meters | None = None,
        clock: Callable[[], float] = time.monotonic,
        route: Route | None = None,
        find: Find = of_this_server,
    ) -> None:
        """`route`: of a transcript, instead of asking the server for it; `find`: see `Stages`."""
        self.draining = False
        """No more calls are taken. For any thread."""

        self.versions = Versions.of_environment()
        self._settings = settings
        self._address = address
        self._make_call = make_call or (lambda request, line: Call(request, line, settings))
        self._meters = meters or Meters()
        self._clock = clock
        self._route = route
        self._find = find
        self._sequences: Sequences[Call] = Sequences(
            most=settings.max_calls, idle_s=settings.idle_s
        )
        self._keys: dict[Call, int | str] = {}
        self._calls: dict[Ear, Call] = {}
        """Also those that are over and have not left yet."""

        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, inbox: Inbox) -> None:
        """Serve until closed."""
        asyncio.run(self._serve(inbox))

    async def _serve(self, inbox: Inbox) -> None:
        def wake(news: object) -> None:
            inbox.put(Wake(news))

        self._report = wake
        self._peer = Peer(self._address)
        self._vad = Vad(self._settings.vad_model, wake)
        self._leaving: Leaving[Call] = Leaving(wake)
        self._transcripts = asyncio.Semaphore(self._settings.max_transcripts)
        self._line = Line(
            self._clock, self._vad.put, self._transcriber, self._peer, self._begin, self._end
        )
        self._ways = Ways(
            self._peer,
            self._settings.transcribe_model,
            hold_s=self._settings.hold_ms / 1000,
            begin=self._begin,
            route=self._route,
            find=self._find,
            versions=self.versions,
        )
        self._begin(self._look_again())
        error: StageError = StageFailed("the stage failed while serving")
        try:
            async for event in inbox.events():
                if isinstance(event, Closed):
                    error = Cancelled("the server is being stopped")
                    return
                self._follow(event)
        finally:
            await self._close(error)

    async def _close(self, error: StageError) -> None:
        """End everybody. The models are called no more before the first request has ended."""
        for task in self._tasks:
            task.cancel()
        for call in self._calls.values():
            self._end(call, error)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._vad.close)
        for ear in list(self._calls):
            self._left(ear)
        await asyncio.to_thread(self._leaving.close)
        await self._peer.close()

    def _follow(self, event: Arrived | CancelTurn | Wake) -> None:
        match event:
            case Arrived(request):
                self._arrived(request)
            case CancelTurn(turn):
                for called in [one for one in self._calls.values() if one.id == turn]:
                    self._end(called, Cancelled("the call was cancelled"))
            case Wake(Judged(found)):
                for ear, probabilities in found:
                    self._judged(self._calls[ear], probabilities)
            case Wake(Deaf(ears, error)):
                for ear in ears:
                    self._end(self._calls[ear], error)
            case Wake(Left(ear)):
                self._left(ear)
            case Wake(Call() as gone):
                self._end(gone, Cancelled("the caller has left"))
            case Wake(asyncio.Task() as task):
                self._tasks.discard(task)
                if not task.cancelled():
                    task.result()  # a bug, which is the whole loop's
            case Wake(Exception() as fault):
                raise fault

    def _judged(self, call: Call, probabilities: Iterable[float]) -> None:
        for one in probabilities:
            if not call.over:  # what it hears may end it
                call.judged(one)

    def _arrived(self, request: Request) -> None:
        now = self._clock()
        key = request.sequence.id or owner_of(request)
        try:
            if request.sequence.start:
                call = self._answer(key, request, now)
            else:
                call = self._sequences.go_on(key, owner_of(request), now)
        except Refused as refused:
            request.fail(self._refusal(refused, key))
        except StageError as error:
            request.fail(error)
        else:
            self._hear(call, request, now)

    def _answer(self, key: int | str, request: Request, now: float) -> Call:
        """A call begins; one of the same caller under the same key is over."""
        if self.draining:
            raise Overloaded(
                "the server is being stopped; no calls are taken",
                reason="draining",
                retry_after_ms=RETRY_AFTER_MS,
            )
        call = self._make_call(request, self._line)
        replaced = self._sequences.begin(key, owner_of(request), now, call)
        if replaced is not None:
            self._end(replaced, Cancelled("the caller has begun the call anew"))
        self._keys[call] = key
        self._calls[call.ear] = call
        self._leaving.watch(call)
        return call

    def _hear(self, call: Call, request: Request, now: float) -> None:
        def done() -> None:
            self._meters.observe("chunk_seconds", (now_ns() - request.arrived_ns) / 1e9)
            if request is not call.request:
                request.finish()

        try:
            call.hear(request, now, done)
        except StageError as error:
            if request is call.request:
                self._end(call, error)
                return
            request.fail(error)
        if request.sequence.end and not call.over:
            self._sequences.end(self._keys[call], call)
            call.ear.end(lambda: self._hang_up(call))

    def _hang_up(self, call: Call) -> None:
        """The caller has said all: end the call when everything has been told."""

        async def hang_up() -> None:
            await call.until_quiet()
            call.tell(CLOSED)
            self._end(call, None)

        self._begin(hang_up())

    def _end(self, call: Call, error: StageError | None) -> None:
        """It is over; its request ends when nothing of it is under way any more."""
        if call.over:
            return
        call.over, call.error = True, error
        self._sequences.end(self._keys.pop(call), call)
        self._leaving.forget(call)
        call.drop()
        self._vad.leave(call.ear)

    def _left(self, ear: Ear) -> None:
        call = self._calls.pop(ear, None)
        if call is None:
            return
        if call.error is None:
            call.request.finish()
        else:
            call.request.fail(call.error)

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._clock()
            for call in self._sequences.idle(now):
                quiet_s = self._settings.idle_s
                self._end(call, DeadlineMissed(f"no sound has come for {quiet_s} s"))
            for call in list(self._calls.values()):
                quiet_ms = 1000 * (now - call.heard_s)
                if call.ear.speaking and not call.over and quiet_ms >= self._settings.gap_ms:
                    call.ear.finish("gap")
            running = len(self._sequences)
            free = self._settings.max_calls - running
            self._meters.slots(running=running, waiting=0, free=free)

    def _transcriber(self, request: Request) -> Transcribe:
        """For the turns of a call."""
        given = request.options.given()
        parameters = {key: given[key] for key in ("traceparent",) if key in given}
        return partial(self._transcribe, parameters)

    async def _transcribe(self, parameters: dict[str, Any], turn: str, sound: Floats) -> str:
        if not sound.size:
            return ""
        async with self._transcripts:
            with self.versions.pinned() as serving:
                return await self._transcribe_now(parameters, turn, sound, serving)

    async def _transcribe_now(
        self, parameters: dict[str, Any], turn: str, sound: Floats, serving: Serving
    ) -> str:
        name = unique(turn)
        found: list[Outputs] = []
        try:
            route, stages = await self._ways.get()
            asking = Asking(
                self._peer,
                stages,
                turn=name,
                parameters=lambda: parameters,
                silence_s=self._settings.no_progress_ms / 1000,
                hold_s=self._settings.hold_ms / 1000,
                refused=lambda stage, for_s: None,
                serving=serving,
            )
            await walk(route, asking.ask, {"AUDIO": sound[None]}, found.append)
        except BaseException as fault:
            self._begin(self._peer.cancel(name, serving.names(self._settings.stage_names)))
            if isinstance(fault, Exception) and not isinstance(fault, StageError):
                log_fault("transcribing failed", fault)
                raise StageFailed("what was said could not be transcribed") from fault
            raise
        heard = b"".join(bytes(one["HEARD"].reshape(-1)[0]) for one in found)
        return heard.decode(errors="replace").strip()

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._report)
        return task

    def _refusal(self, refused: Refused, key: int | str) -> StageError:
        if refused.why == "full":
            return Overloaded(
                f"{self._settings.max_calls} calls are on the line; no more may be",
                reason="queue",
                retry_after_ms=RETRY_AFTER_MS,
            )
        return InvalidInput(WHY[refused.why].format(key=repr(key)[:80]))
