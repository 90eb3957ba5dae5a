"""Where a live call's sound comes from: recordings, in the pace of a microphone, or a device."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from client.live.events import Floats, LiveEvent
from client.live.speaker import Pcm, Speaker, to_pcm
from python_backends.errors import InvalidInput

__all__ = ["Device", "Pcm", "Recordings", "to_pcm"]


class Recordings(AsyncIterator[Pcm]):
    """What a `Speaker` says, a chunk whenever its time is over."""

    def __init__(
        self,
        sounds: Sequence[Floats],
        *,
        rate_hz: int = 16_000,
        chunk_s: float = 0.1,
        barge_in_s: float | None = None,
    ) -> None:
        """See Speaker."""
        self._speaker = Speaker(sounds, rate_hz=rate_hz, chunk_s=chunk_s, barge_in_s=barge_in_s)
        self._began_s: float | None = None
        self._chunks = 0

    @property
    def ends_s(self) -> list[float]:
        """See Speaker."""
        return self._speaker.ends_s

    def follow(self, event: LiveEvent) -> None:
        """See Speaker."""
        self._speaker.follow(event, time.monotonic())

    async def __anext__(self) -> Pcm:
        if self._began_s is None:
            self._began_s = time.monotonic()
        self._chunks += 1
        due_s = self._began_s + self._chunks * self._speaker.chunk_s
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        chunk = self._speaker.chunk(due_s)
        if chunk is None:
            raise StopAsyncIteration
        return chunk


class Device(AsyncIterator[Pcm]):
    """The default microphone, until `stop`, and the loudspeaker, until `close`."""

    def __init__(
        self, read: Callable[[int], Floats], *, rate_hz: int = 24_000, chunk_s: float = 0.04
    ) -> None:
        """`read`: gives float32 [n] to be played for n samples, on another thread. InvalidInput
        where there is no device."""
        try:
            import sounddevice
        except (ImportError, OSError) as fault:
            raise InvalidInput(
                "a microphone needs the package sounddevice, and PortAudio: pip install sounddevice"
            ) from fault
        loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[Pcm | None] = asyncio.Queue()
        self._stopped = False

        def through(heard: Any, played: Any, frames: int, times: Any, status: Any) -> None:
            played[:, 0] = read(frames)
            if not self._stopped:
                pcm = to_pcm(heard[:, 0])
                loop.call_soon_threadsafe(self._chunks.put_nowait, pcm)

        try:
            self._stream = sounddevice.Stream(
                samplerate=rate_hz,
                blocksize=round(chunk_s * rate_hz),
                channels=1,
                dtype="float32",
                callback=through,
            )
            self._stream.start()
        except sounddevice.PortAudioError as fault:
            raise InvalidInput(f"there is no microphone and loudspeaker to use: {fault}") from fault

    def stop(self) -> None:
        """Nothing is heard any more; the iterator ends."""
        self._stopped = True
        self._chunks.put_nowait(None)

    def close(self) -> None:
        """Nothing is played any more either."""
        self._stopped = True
        self._stream.close()

    async def __anext__(self) -> Pcm:
        chunk = await self._chunks.get()
        if chunk is None:
            raise StopAsyncIteration
        return chunk
