"""Live calls from threads: their event loop runs in a thread of its own.

with BlockingLiveClient("127.0.0.1:8001") as client, client.call(rate_hz=48_000) as call:
    call.send(pcm)                         # from the thread that records
    for event in call:                     # in another
        ...
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from client.live.call import LiveCall, LiveClient
from client.live.events import LiveEvent

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


class BlockingLiveCall(Iterator[LiveEvent]):
    """`LiveCall` for threads: one iterates, any may send, hang up and cancel."""

    def __init__(self, call: LiveCall, run: Run[Any]) -> None:
        self.call_id = call.call_id
        self._call = call
        self._run = run

    def send(
        self, pcm: bytes | npt.NDArray[np.int16], *, report: Mapping[str, Any] | None = None
    ) -> None:
        """See LiveCall."""
        self._run(self._call.send(pcm, report=report))

    def stop_answer(self) -> None:
        """See LiveCall."""
        self._run(self._call.stop_answer())

    def hang_up(self) -> None:
        """See LiveCall."""
        self._run(self._call.hang_up())

    def cancel(self) -> None:
        """See LiveCall."""

        async def cancel() -> None:
            self._call.cancel()

        self._run(cancel())

    def __next__(self) -> LiveEvent:
        async def following() -> LiveEvent | None:
            return await anext(self._call, None)

        event: LiveEvent | None = self._run(following())
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self._run(self._call.__aexit__(*fault))


class BlockingLiveClient:
    """`LiveClient` for threads."""

    def __init__(self, address: str, **given: Any) -> None:
        """See LiveClient."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def client() -> LiveClient:
            return LiveClient(address, **given)

        self._client = self._run(client())

    def call(self, **given: Any) -> BlockingLiveCall:
        """See LiveClient."""

        async def call() -> LiveCall:
            return self._client.call(**given)

        return BlockingLiveCall(self._run(call()), self._run)

    def close(self) -> None:
        """Close the channel; open calls are cancelled."""
        self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()
