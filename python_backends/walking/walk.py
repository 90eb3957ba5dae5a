"""One turn on its route: every response of a step is a request of the next.

Requests of one step run beside each other, and what they give goes on in their order: the pieces of
an answer, and the chunks of each piece, stay in order whatever stages and replicas do.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from python_backends.errors import StageError
from python_backends.peer import Outputs
from python_backends.walking.route import Route, Step

AHEAD: Final = 4
"""Requests of a turn that are under way at one step."""

HELD: Final = 64
"""Responses that may wait for those before them."""

Deliver = Callable[[Outputs], Awaitable[None]]
Ask = Callable[[Step, Outputs, Deliver], Awaitable[None]]
"""Sends tensors to a step and delivers each of its responses, as tensors of the route."""

_Lane = asyncio.Queue[Outputs | None]
"""Tensors of the route; None behind the last."""


async def walk(route: Route, ask: Ask, given: Outputs, emit: Callable[[Outputs], None]) -> None:
    """Bring `given` to the end of the route, and `emit` what arrives, in order.

    Raises the first StageError; nothing of the turn is under way any more then.
    """
    try:
        async with asyncio.TaskGroup() as group:
            lane = _Lane()
            lane.put_nowait(given)
            lane.put_nowait(None)
            for step in route.steps:
                source, lane = lane, _Lane(HELD)
                group.create_task(_Crossing(step, ask, group).run(source, lane))
            while (tensors := await lane.get()) is not None:
                emit(route.answer(tensors))
    except* StageError as failed:
        error: BaseException = failed
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


class _Crossing:
    """The requests of a turn at one step."""

    def __init__(self, step: Step, ask: Ask, group: asyncio.TaskGroup) -> None:
        self._step = step
        self._ask = ask
        self._group = group
        self._room = asyncio.Semaphore(AHEAD)

    async def run(self, source: _Lane, sink: _Lane) -> None:
        """Until `source` has ended, and everything of it is in `sink`."""
        lanes: asyncio.Queue[_Lane | None] = asyncio.Queue()
        self._group.create_task(self._send(source, lanes))
        while (lane := await lanes.get()) is not None:
            while (tensors := await lane.get()) is not None:
                await sink.put(tensors)
        await sink.put(None)

    async def _send(self, source: _Lane, lanes: "asyncio.Queue[_Lane | None]") -> None:
        while (tensors := await source.get()) is not None:
            await self._room.acquire()
            lane = _Lane(HELD)
            lanes.put_nowait(lane)
            self._group.create_task(self._request(tensors, lane))
        lanes.put_nowait(None)

    async def _request(self, tensors: Outputs, lane: _Lane) -> None:
        async def deliver(found: Outputs) -> None:
            await lane.put({**tensors, **found})

        await self._ask(self._step, tensors, deliver)
        await lane.put(None)
        self._room.release()
