"""The front door: every turn is a task of one asyncio loop."""

import asyncio
import contextlib
import uuid

from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request, Wake
from python_backends.bridge.events import now_ns
from python_backends.errors import Cancelled, DeadlineMissed, Overloaded, StageError, StageFailed
from python_backends.front_door.settings import DoorSettings
from python_backends.peer import Outputs, Peer

TENSORS = ("AUDIO", "HISTORY", "SESSION_ID")
POLL_S = 0.02
RETRY_AFTER_MS = 500


class Door:
    """Relays turns; whoever cancels or leaves stops every stage.

    Behind the door a turn bears its caller's id with a suffix: ids may be missing or used twice.
    """

    def __init__(self, settings: DoorSettings, address: str) -> None:
        self._settings = settings
        self._address = address
        self._turns: dict[str, asyncio.Task[None]] = {}
        """Turns that may still be cancelled."""

        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, inbox: Inbox) -> None:
        """Serve until closed."""
        asyncio.run(self._serve(inbox))

    async def _serve(self, inbox: Inbox) -> None:
        self._peer = Peer(self._address)
        try:
            async for event in inbox.events():
                match event:
                    case Arrived(request):
                        self._admit(request)
                    case CancelTurn(turn):
                        self._stop(turn)
                    case Wake():
                        pass
                    case Closed():
                        return
        finally:
            await self._drain()

    def _admit(self, request: Request) -> None:
        if len(self._turns) >= self._settings.max_turns:
            request.fail(
                Overloaded(
                    f"{len(self._turns)} turns are open; at most {self._settings.max_turns} may",
                    retry_after_ms=RETRY_AFTER_MS,
                )
            )
            return
        turn = f"{request.turn}~{uuid.uuid4().hex[:8]}"
        task = asyncio.create_task(self._turn(request, turn))
        self._turns[turn] = task
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(request, turn, task))

    def _ended(self, request: Request, turn: str, task: "asyncio.Task[None]") -> None:
        """A turn is over; one that was cancelled before its task first ran is answered here."""
        self._tasks.discard(task)
        self._turns.pop(turn, None)
        request.fail(Cancelled("the turn was cancelled"))

    def _stop(self, wanted: str) -> None:
        """Cancel every open turn that its caller named `wanted`."""
        for turn, task in self._turns.items():
            if turn.rpartition("~")[0] == wanted:
                task.cancel()

    async def _drain(self) -> None:
        for task in self._turns.values():
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._peer.close()

    async def _turn(self, request: Request, turn: str) -> None:
        """Relay a turn to its end; whatever else ends it, every stage is told to drop it."""
        request.poll_interval_s = POLL_S
        watcher = asyncio.create_task(self._watch(request, asyncio.current_task()))
        error: StageError = StageFailed("the front door failed")
        try:
            async with asyncio.timeout(request.options.deadline_ms / 1000 or None):
                await self._relay(request, turn)
            request.finish()
            return
        except TimeoutError:
            error = DeadlineMissed(f"not answered within {request.options.deadline_ms} ms")
        except asyncio.CancelledError:
            error = Cancelled("the turn was cancelled")
        except StageError as fault:
            error = fault
        finally:
            self._turns.pop(turn, None)
            watcher.cancel()
            if request.is_open:
                await self._peer.cancel(turn, self._settings.stage_names)
                error.turn = request.turn
                request.fail(error)

    async def _relay(self, request: Request, turn: str) -> None:
        inputs = {
            name: values for name in TENSORS if (values := request.optional(name)) is not None
        }
        request.required("AUDIO")
        responses = self._peer.stream(
            self._settings.ensemble,
            inputs,
            turn=turn,
            parameters=request.options.given(),
            silence_s=self._settings.no_progress_ms / 1000,
        )
        async with contextlib.aclosing(responses):
            async for answer in responses:
                request.send(self._stamped(request, answer.outputs))

    def _stamped(self, request: Request, outputs: Outputs) -> Outputs:
        """The response with a span of the front door itself behind its events."""
        span = request.span(
            "relay", request.arrived_ns, now_ns(), piece=int(outputs["PIECE"][0, 0])
        )
        return {**outputs, "EVENTS": request.events_after(outputs["EVENTS"], span)}

    async def _watch(self, request: Request, task: "asyncio.Task[None] | None") -> None:
        """Cancel the turn's task as soon as its caller is gone."""
        while task is not None and not task.done():
            if request.cancelled:
                task.cancel()
                return
            await asyncio.sleep(POLL_S)
