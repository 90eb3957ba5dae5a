"""The one place that speaks HTTP: an OpenAI-compatible API."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import aiohttp

from python_backends.errors import StageError, StageFailed
from python_backends.served_llm import chat
from python_backends.served_llm.chat import Delta, read_delta
from python_backends.served_llm.events import EventStream, EventTooLong
from python_backends.served_llm.settings import ServedSettings

T = TypeVar("T")

DRAIN_S: Final = 0.5
"""That the end of a stream may take to come behind the end of its answer."""

MOST_BODY_BYTES: Final = 2**20
HIDDEN: Final = "***"


class Endpoint:
    """Used on one running event loop, from `open` to `close`. Faults are StageErrors that name
    neither the address nor the key."""

    def __init__(self, settings: ServedSettings, key: str = "") -> None:
        self._settings = settings
        self._url = settings.base_url.rstrip("/")
        self._key = key
        self._name = settings.model
        self._listing: asyncio.Task[str] | None = None

    def open(self) -> None:
        """Nothing is asked yet: the endpoint need not be there."""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._session = aiohttp.ClientSession(
            connector=_connector(self._settings.keep_ms),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._settings.connect_ms / 1e3),
            headers=headers,
        )

    async def close(self) -> None:
        """End every connection."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.gather(self._listing, return_exceptions=True)
        await self._session.close()

    async def model(self) -> str:
        """The name to ask for, which the endpoint is asked for once where none is configured, by
        all who need it together."""
        if self._name:
            return self._name
        if self._listing is None:
            self._listing = asyncio.create_task(self._first_model())
            self._listing.add_done_callback(self._listed)
        return await asyncio.shield(self._listing)

    async def _first_model(self) -> str:
        async with self._asked("GET", "models") as response:
            return chat.first_model(await self._body(response))

    def _listed(self, listing: "asyncio.Task[str]") -> None:
        self._listing = None
        if not listing.cancelled() and listing.exception() is None:
            self._name = listing.result()

    async def deltas(
        self, body: dict[str, Any], traceparent: str = ""
    ) -> AsyncGenerator[Delta, None]:
        """The answer to a request, part by part; the last one says why it ended.

        To leave the iteration, or to cancel it, closes the connection, by which the endpoint knows
        that nobody waits any more.
        """
        headers = {"traceparent": traceparent} if traceparent else {}
        async with self._asked("POST", "chat/completions", json=body, headers=headers) as response:
            if response.content_type != "text/event-stream":
                raise StageFailed(
                    f"the LLM's endpoint answers with {response.content_type[:80]!r}, not with an "
                    "event stream"
                )
            events = _Events(response)
            while True:
                delta = read_delta(await self._in_time(events.next()))
                yield delta
                if delta.ended:
                    await events.drain()
                    return

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response of status 200. Its connection is closed unless it was read to its end."""
        asked = self._session.request(method, f"{self._url}/{path}", allow_redirects=False, **more)
        response = await self._in_time(asked)
        try:
            if response.status != 200:
                raise await self._refusal(response)
            yield response
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def _refusal(self, response: aiohttp.ClientResponse) -> StageError:
        if response.status == 404 and not self._settings.model:
            self._name = ""  # it may have been started again with another one
        try:
            told = chat.told(json.loads(await self._body(response)))
        except (ValueError, RecursionError, StageError):
            told = ""
        header = response.headers.get("Retry-After", "")
        retry_ms = chat.retry_after_ms(header, datetime.now(UTC)) if header else None
        return chat.refusal(response.status, self._without_secrets(told), retry_ms)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """What is no stream, as far as it is of a reasonable length."""
        read = bytearray()
        while len(read) < MOST_BODY_BYTES:
            fresh = await self._in_time(response.content.readany())
            if not fresh:
                break
            read += fresh
        return bytes(read)

    def _without_secrets(self, message: str) -> str:
        """A server may quote its request."""
        for secret in (self._key, self._url, self._url.partition("//")[2].partition("/")[0]):
            message = message.replace(secret, HIDDEN) if secret else message
        return message

    async def _in_time(self, awaited: Awaitable[T]) -> T:
        """What comes, if it comes in time. The words of a fault would name the address."""
        silence_ms = self._settings.silence_ms
        try:
            async with asyncio.timeout(silence_ms / 1000):
                return await awaited
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as fault:
            raise StageFailed("the LLM's endpoint cannot be reached") from fault
        except (aiohttp.ClientError, EventTooLong) as fault:
            raise _broken_off() from fault
        except TimeoutError as fault:
            told = f"the LLM's endpoint has sent nothing for {silence_ms} ms"
            raise StageFailed(told) from fault


def _connector(keep_ms: int) -> aiohttp.TCPConnector:
    """As many connections as there are answers: others count those."""
    if keep_ms:
        return aiohttp.TCPConnector(limit=0, keepalive_timeout=keep_ms / 1000)
    return aiohttp.TCPConnector(limit=0, force_close=True)


class _Events:
    """The data of a response's events, one after the other."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        self._stream = EventStream()
        self._ready: deque[str] = deque()

    async def next(self) -> str:
        """StageFailed when the stream ends before its answer has."""
        while not self._ready:
            fresh = await self._content.readany()
            if not fresh:
                raise _broken_off()
            self._ready.extend(self._stream.add(fresh))
        return self._ready.popleft()

    async def drain(self) -> None:
        """Read what follows the answer, so that the endpoint has not been broken off."""
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(DRAIN_S):
                while await self._content.readany():
                    pass


def _broken_off() -> StageFailed:
    return StageFailed("the LLM's endpoint has broken off its answer")
