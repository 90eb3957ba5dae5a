"""An OpenAI-compatible endpoint that answers as a script says, on a thread of its own."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

WAIT_S = 10.0
NAME = "some-llm"


class Call:
    """One request for an answer, and its event stream."""

    def __init__(self, request: web.Request, body: dict[str, Any], gone: threading.Event) -> None:
        self.headers = request.headers
        self.body = body
        self.gone = gone
        """Whoever asked has closed the connection."""

        self.request = request
        self._response: web.StreamResponse | None = None

    async def raw(self, sent: bytes) -> None:
        if self._response is None:
            self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await self._response.prepare(self.request)
        await self._response.write(sent)

    async def event(self, what: Any) -> None:
        await self.raw(f"data: {what if isinstance(what, str) else json.dumps(what)}\n\n".encode())

    async def say(self, *texts: str) -> None:
        for text in texts:
            await self.event({"choices": [{"delta": {"content": text}, "finish_reason": None}]})

    async def end(self, reason: str = "stop") -> None:
        await self.event({"choices": [{"delta": {}, "finish_reason": reason}]})
        await self.event("[DONE]")

    def break_off(self) -> None:
        assert self.request.transport is not None
        self.request.transport.abort()

    async def until_gone(self) -> None:
        """Never ends by itself: aiohttp cancels a handler whose client has gone."""
        await asyncio.sleep(WAIT_S)


Script = Callable[[Call], Awaitable[web.StreamResponse | None]]


class FakeLlm:
    """Its requests, and what may be waited for."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.arrived = threading.Semaphore(0)
        self.listed = 0
        """How often it was asked for its models."""

        self.hangs = False
        """It does not tell them."""

        self.connections: set[Any] = set()
        """Addresses that requests came from."""

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [call.body for call in self.calls]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        call = Call(request, await request.json(), threading.Event())
        assert request.transport is not None
        self.connections.add(request.transport.get_extra_info("peername"))
        self.calls.append(call)
        self.arrived.release()
        try:
            return await self.script(call) or call._response or web.Response(status=500)
        except (asyncio.CancelledError, ConnectionError):
            call.gone.set()
            raise

    async def models(self, request: web.Request) -> web.StreamResponse:
        self.listed += 1
        if self.hangs:
            await asyncio.sleep(WAIT_S)
        return web.json_response({"object": "list", "data": [{"id": NAME}]})


@contextmanager
def serving(script: Script) -> Iterator[tuple[FakeLlm, str]]:
    """The endpoint, and the URL of its API."""
    fake = FakeLlm(script)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", fake.answer)
        app.router.add_get("/v1/models", fake.models)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [(_, port)] = runner.addresses
        return runner, port

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(WAIT_S)

    runner, port = run(start())
    try:
        yield fake, f"http://127.0.0.1:{port}/v1"
    finally:
        with contextlib.suppress(TimeoutError):
            run(runner.cleanup())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def two_pieces(call: Call) -> None:
    """Two clauses, word by word."""
    await call.say("Two", " burgers", ", coming", " right", " up.", " Anything", " else?")
    await call.end()


async def one_piece_then_silence(call: Call) -> None:
    await call.say("Two burgers, ")
    await call.say("and ")
    await call.until_gone()
