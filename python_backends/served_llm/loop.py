"""`think` by an LLM that is served elsewhere: every request is a task of one asyncio loop."""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from python_backends.ar_loop.answer import Answer
from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Meters, Request, Wake
from python_backends.bridge.events import now_ns
from python_backends.bridge.leaving import Leaving
from python_backends.bridge.options import MAX_SESSION_CHARS
from python_backends.errors import Cancelled, DeadlineMissed, StageError, StageFailed
from python_backends.ordering.prompt import parse_history
from python_backends.served_llm import chat
from python_backends.served_llm.endpoint import Endpoint
from python_backends.served_llm.places import Places
from python_backends.served_llm.reply import Reply
from python_backends.served_llm.settings import ServedSettings


@dataclass(eq=False)
class _Open:
    """A request, the task that answers it, and what ended it before its time."""

    request: Request
    task: "asyncio.Task[None] | None" = None
    error: StageError | None = None

    def stop(self, error: StageError) -> None:
        """End it; the first reason stays."""
        if self.error is None and self.task is not None:
            self.error = error
            self.task.cancel()


class ServedLoop:
    """Asks the endpoint for an answer to each request, and splits it into pieces as it comes.

    `system`: what every conversation begins with; `key`: of the API, empty for none.
    """

    def __init__(
        self,
        settings: ServedSettings,
        system: str,
        key: str = "",
        meters: Meters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.places = Places(settings.max_open, settings.max_waiting, clock, self._tell)
        self._settings = settings
        self._system = system
        self._key = key
        self._meters = meters or Meters()
        self._open: set[_Open] = set()

    def run(self, inbox: Inbox) -> None:
        """Serve until closed."""
        asyncio.run(self._serve(inbox))

    async def _serve(self, inbox: Inbox) -> None:
        self._report: Callable[[object], None] = lambda news: inbox.put(Wake(news))
        self._endpoint = Endpoint(self._settings, self._key)
        self._endpoint.open()
        self._leaving: Leaving[_Open] = Leaving(self._report)
        self._tell(0, 0)
        error: StageError = StageFailed("the stage failed while serving")
        try:
            async for event in inbox.events():
                match event:
                    case Arrived(request):
                        self._begin(request)
                    case CancelTurn(turn):
                        for one in [one for one in self._open if one.request.turn == turn]:
                            one.stop(Cancelled("the turn was cancelled"))
                    case Wake(_Open() as one):
                        one.stop(Cancelled("the caller has left"))
                    case Wake(asyncio.Task() as ended) if not ended.cancelled():
                        ended.result()  # a bug, which is the whole loop's
                    case Wake(Exception() as fault):
                        raise fault
                    case Wake():
                        pass
                    case Closed():
                        error = Cancelled("the server is being stopped")
                        return
        finally:
            await self._close(error)

    async def _close(self, error: StageError) -> None:
        tasks = [one.task for one in self._open if one.task is not None]
        for one in self._open:
            one.stop(error)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._endpoint.close()
        await asyncio.to_thread(self._leaving.close)

    def _begin(self, request: Request) -> None:
        one = _Open(request)
        self._open.add(one)
        self._leaving.watch(one)
        one.task = asyncio.create_task(self._serve_one(one))
        one.task.add_done_callback(lambda task: self._ended(one, task))

    def _ended(self, one: _Open, task: "asyncio.Task[None]") -> None:
        """Also of a task that was cancelled before it first ran."""
        self._open.discard(one)
        self._leaving.forget(one)
        fault = None if task.cancelled() else task.exception()
        if fault is None:
            one.request.fail(one.error or Cancelled("the turn was cancelled"))
        self._report(task)

    async def _serve_one(self, one: _Open) -> None:
        """One request from its arrival to its end, or to the error that it is to have."""
        request, allowed_ms = one.request, one.request.options.deadline_ms
        waited_s = (now_ns() - request.arrived_ns) / 1e9
        try:
            async with asyncio.timeout(allowed_ms / 1000 - waited_s if allowed_ms else None):
                await self._answer(request)
        except TimeoutError:
            one.error = one.error or DeadlineMissed(f"not answered within {allowed_ms} ms")
        except asyncio.CancelledError:
            pass  # whoever cancelled has said why
        except StageError as error:
            one.error = one.error or error

    async def _answer(self, request: Request) -> None:
        heard = request.text("HEARD").strip()
        answer = Answer(request, heard)
        if not heard:
            answer.emit("", last=True, status="no_speech")
            request.finish()
            return
        session = request.text("SESSION_ID", "", most=MAX_SESSION_CHARS)
        history = parse_history(request.text("HISTORY", ""))
        said = chat.messages(self._system, history, heard, self._settings.prompt_chars)
        owner = request.options.caller or session or request
        async with self.places.one(owner):
            self._meters.observe("queue_seconds", (now_ns() - request.arrived_ns) / 1e9)
            await self._think(answer, said)

    async def _think(self, answer: Answer, said: list[chat.Message]) -> None:
        options = answer.request.options
        body = chat.body(self._settings, await self._endpoint.model(), said, options)
        reply = Reply(answer, int(body["max_tokens"]))
        async with aclosing(self._endpoint.deltas(body, options.traceparent)) as deltas:
            async for delta in deltas:
                if ended := reply.add(delta.text) or delta.ended:
                    reply.close(ended)
                if ended and not delta.ended:
                    break  # nothing more is wanted

    def _tell(self, running: int, waiting: int) -> None:
        free = self._settings.max_open - running
        self._meters.slots(running=running, waiting=waiting, free=free)
