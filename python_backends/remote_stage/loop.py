"""A stage that is served elsewhere: every request is a task of one asyncio loop.

Ensembles and front door see the stage under its own name; which of its replicas computes, and that
one of them may hang or die, is known here alone.
"""

import asyncio
import contextlib
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request, Wake
from python_backends.bridge.events import now_ns
from python_backends.bridge.meters import Meters
from python_backends.bridge.options import MAX_SESSION_CHARS
from python_backends.errors import Cancelled, DeadlineMissed, Overloaded, StageError, StageFailed
from python_backends.peer import Answer, Outputs, Silent, Unreachable
from python_backends.pieces import LAST_PIECE
from python_backends.regions import Place, Region
from python_backends.remote_stage.fifo import Ticket, TurnFifo
from python_backends.remote_stage.line import Line
from python_backends.remote_stage.placement import Source
from python_backends.remote_stage.settings import RemoteSettings
from python_backends.scheduling.replicas import Replica, Replicas
from python_backends.wire import NOTHING_SHARED

LOOK_S = 0.1
"""How often the placement is looked at, and callers who are due are asked whether they are gone."""

RETRY_AFTER_MS = 500
"""When to come back where no replica answers: a server is started again in a few seconds."""


PREFIX_VARIABLE = "TRISTAGE_SHM_PREFIX"


@dataclass(eq=False)
class _Open:
    """A request, the task that relays it, and what ended it before its time."""

    request: Request
    ticket: Ticket
    line: Line | None = None
    task: "asyncio.Task[None] | None" = None
    error: StageError | None = None
    is_known_there: bool = True
    """The replica may still compute for it, and has to be told to drop it."""

    def stop(self, error: StageError) -> None:
        """End it; the first reason stays."""
        if self.error is None and self.task is not None:
            self.error = error
            self.task.cancel()


class RemoteLoop:
    """Relays the requests of a stage to its replicas. `inputs`: what the stage takes."""

    def __init__(
        self,
        stage: str,
        inputs: Sequence[str],
        settings: RemoteSettings,
        placement: Source,
        meters: Meters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage = stage
        self._inputs = [name for name in inputs if name != "CONTROL"]
        self._settings = settings
        self._placement = placement
        self._meters = meters or Meters()
        self._told: dict[str, int] = {}
        self._clock = clock
        self._region: Region | None = None
        self._replicas = Replicas()
        self._lines: dict[Replica, Line] = {}
        self._fifo = TurnFifo()
        self._open: set[_Open] = set()
        self._errands: set[asyncio.Task[None]] = set()

    def run(self, inbox: Inbox) -> None:
        """Serve until closed."""
        asyncio.run(self._serve(inbox))

    async def _serve(self, inbox: Inbox) -> None:
        if self._settings.shared_memory_bytes:
            with contextlib.suppress(OSError):  # no room: everything is sent
                self._region = Region(_region_name(self._stage), self._settings.shared_memory_bytes)
        await self._look()
        looking = asyncio.create_task(self._look_again())
        looking.add_done_callback(lambda ended: inbox.put(Wake(ended)))
        try:
            async for event in inbox.events():
                match event:
                    case Arrived(request):
                        self._begin(request)
                    case CancelTurn(turn):
                        self._cancel(turn)
                    case Wake(asyncio.Task() as ended) if not ended.cancelled():
                        ended.result()  # a bug, which is the whole loop's
                    case Wake():
                        pass
                    case Closed():
                        return
        finally:
            looking.cancel()
            self._placement.close()
            await self._drain()

    async def _drain(self) -> None:
        for one in self._open:
            one.stop(StageFailed("the server is being stopped", stage=self._stage))
        tasks = [one.task for one in self._open if one.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*self._errands, return_exceptions=True)
        for line in self._lines.values():
            await line.close()
        if self._region is not None:
            self._region.close()

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()
            for one in [one for one in self._open if one.request.cancelled]:
                one.stop(Cancelled("the caller has left", stage=self._stage))

    async def _look(self) -> None:
        """Take up what the placement says now: lines to new replicas, none to the gone."""
        self._replicas.forget(self._clock())
        listed = self._placement.changed()
        if listed is not None:
            self._replicas.update(listed)
        known = self._replicas.known()
        for replica in known:
            if replica not in self._lines:
                self._lines[replica] = Line(
                    replica, self._stage, self._settings, self._lost, self._region, self._clock
                )
        for replica in [one for one in self._lines if one not in known]:
            await self._lines.pop(replica).close()
        for line in self._lines.values():
            line.check()
        turns: Counter[str] = Counter()
        for replica in known:
            turns[replica.name] += replica.turns
        self._tell(turns)

    def _tell(self, turns: Mapping[str, int]) -> None:
        """Turns at each replica, where they have changed; none at one that has gone."""
        told = {**dict.fromkeys(self._told, 0), **turns}
        for replica, count in told.items():
            if self._told.get(replica) != count:
                self._meters.gauge("remote_turns", count, replica=replica)
        self._told = dict(turns)

    def _begin(self, request: Request) -> None:
        if len(self._open) >= self._settings.max_open:
            message = f"{len(self._open)} requests are open, and no more are taken"
            request.fail(Overloaded(message, retry_after_ms=RETRY_AFTER_MS))
            return
        one = _Open(request, self._fifo.enter(request.turn))
        self._open.add(one)
        one.task = asyncio.create_task(self._relay(one))
        one.task.add_done_callback(lambda _: self._ended(one))

    def _ended(self, one: _Open) -> None:
        """Also of a task that was cancelled before it first ran."""
        self._open.discard(one)
        with one.ticket:
            one.request.fail(one.error or Cancelled("the turn was cancelled"))

    def _cancel(self, turn: str) -> None:
        for one in [one for one in self._open if one.request.turn == turn]:
            one.stop(Cancelled("the turn was cancelled", stage=self._stage))
        self._replicas.end(turn)

    def _lost(self, line: Line, error: StageError) -> None:
        """Nothing will come from a replica: whatever is open there fails now."""
        for one in [one for one in self._open if one.line is line]:
            one.stop(StageFailed(error.message, stage=self._stage))

    async def _relay(self, one: _Open) -> None:
        """One request from its arrival to its end."""
        request = one.request
        deadline_s = request.options.deadline_ms / 1000 or None
        over = True
        try:
            with self._at_a_replica(one):
                async with asyncio.timeout(deadline_s):
                    await self._pass_on(one)
                over = _ends_turn(request)
        except TimeoutError:
            late = f"not answered within {request.options.deadline_ms} ms"
            one.error = one.error or DeadlineMissed(late)
        except asyncio.CancelledError:
            pass  # whoever cancelled has said why
        except StageError as error:
            one.error = one.error or error
            one.is_known_there = isinstance(error, Silent)
        finally:
            self._let_go(one, over=over)

    @contextlib.contextmanager
    def _at_a_replica(self, one: _Open) -> Iterator[None]:
        """Find the request's replica; a connection that breaks there is noticed."""
        session = ""
        if "SESSION_ID" in self._inputs:
            session = one.request.text("SESSION_ID", "", most=MAX_SESSION_CHARS)
        replica = self._replicas.enter(one.request.turn, session, self._clock())
        if replica is None:
            raise Overloaded(
                f"no replica of {self._stage!r} answers that could take the turn",
                stage=self._stage,
                retry_after_ms=RETRY_AFTER_MS,
            )
        one.line = self._lines[replica]
        try:
            yield
        except Unreachable:
            one.line.broke()
            raise

    async def _pass_on(self, one: _Open) -> None:
        """Have it answered there, and every answer handed on when its time has come."""
        request, line = one.request, one.line
        assert line is not None
        found = {name: request.optional(name) for name in self._inputs}
        inputs = {name: values for name, values in found.items() if values is not None}
        with self._sharing(line, inputs) as shared:
            answers = line.peer.stream(
                self._stage,
                inputs,
                turn=request.turn,
                parameters=request.options.given(),
                silence_s=self._settings.silence_ms / 1000,
                shared=shared,
            )
            async with contextlib.aclosing(answers):
                async for answer in answers:
                    line.heard()
                    await one.ticket.first()
                    self._hand_on(request, line, answer)
        await one.ticket.first()
        request.finish()

    @contextlib.contextmanager
    def _sharing(self, line: Line, inputs: Outputs) -> Iterator[Mapping[str, Place]]:
        """Large inputs in shared memory for as long as the request is open, where that can be."""
        region = line.region
        large = {} if region is None else self._large(inputs)
        block = region.put(large) if region is not None and large else None
        try:
            yield NOTHING_SHARED if block is None else block.places
        finally:
            if region is not None and block is not None:
                region.give_back(block)

    def _large(self, inputs: Outputs) -> Outputs:
        least = self._settings.shared_memory_min_bytes
        return {
            name: values
            for name, values in inputs.items()
            if values.dtype != np.object_ and values.nbytes >= least
        }

    def _hand_on(self, request: Request, line: Line, answer: Answer) -> None:
        outputs = self._stamped(request, line, answer.outputs)
        if answer.last:
            request.finish(outputs)
        else:
            request.send(outputs)

    def _stamped(self, request: Request, line: Line, outputs: Outputs) -> Outputs:
        """The replica's events on our clock, with a span of the way there and back behind them."""
        events = outputs.get("EVENTS")
        if events is None or not events.size or not events.flat[-1]:
            return outputs
        piece = int(outputs["PIECE"][0, 0]) if "PIECE" in outputs else 0
        span = request.span(
            "remote", request.arrived_ns, now_ns(), piece=piece, replica=line.replica.name
        )
        ours = line.host_clock.ours(events, request.events)
        return {**outputs, "EVENTS": request.events_after(ours, span)}

    def _let_go(self, one: _Open, *, over: bool) -> None:
        """Answer a request that has failed, and have its replica drop what it still computes."""
        request, line = one.request, one.line
        if request.is_open:
            request.fail(one.error or StageFailed("the proxy failed", stage=self._stage))
            drop = self._settings.controlled and one.is_known_there
            if line is not None and drop and not line.replica.lost:
                errand = asyncio.create_task(line.peer.cancel(request.turn, [self._stage]))
                self._errands.add(errand)
                errand.add_done_callback(self._errands.discard)
        else:
            over = _ends_turn(request)  # answered well, whatever came afterwards
        if line is not None:
            self._replicas.leave(request.turn, self._clock(), over=over)


def _region_name(stage: str) -> str:
    """Begins as all shared memory of this deployment, so that it goes with it at the latest; used
    once, since servers remember it."""
    return f"{os.environ.get(PREFIX_VARIABLE, 'tristage-')}{stage}-{uuid.uuid4().hex[:12]}"


def _ends_turn(request: Request) -> bool:
    """No other request of its turn will follow: the last piece, or a stage that is asked once."""
    place = request.optional("PIECE")
    return place is None or bool(int(place.reshape(-1)[2]) & LAST_PIECE)
