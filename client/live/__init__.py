"""Live calls: a caller's sound in chunks, and answers on the same stream.

    async with LiveClient("127.0.0.1:8001") as client, client.call(rate_hz=48_000) as call:
        await call.send(pcm)                   # every 20 to 100 ms, as a microphone gives it
        async for event in call:               # in a task of its own
            ...

`converse` does both for a microphone and a loudspeaker, real ones or files; `BlockingLiveClient` is
for threads.
"""

from client.live.blocking import BlockingLiveCall, BlockingLiveClient
from client.live.call import LiveCall, LiveClient
from client.live.converse import converse
from client.live.events import LiveEvent
from client.live.playback import Playback

__all__ = [
    "BlockingLiveCall",
    "BlockingLiveClient",
    "LiveCall",
    "LiveClient",
    "LiveEvent",
    "Playback",
    "converse",
]
