"""A whole call: a microphone is sent, answers are played, and the server is told how far."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from client.live.call import LiveCall
from client.live.events import Floats, LiveEvent
from client.live.microphones import Pcm
from client.live.playback import Playback

SLICE_S = 0.02
"""A loudspeaker takes so much at a time."""

BEHIND_S = 0.2
"""How much longer than it is the end of the last answer may take to be played."""


async def converse(
    call: LiveCall,
    microphone: AsyncIterator[Pcm],
    playback: Playback,
    *,
    on_event: Callable[[LiveEvent], None] = lambda event: None,
    heard: Callable[[Floats], None] | None = None,
) -> None:
    """Send what the microphone gives until it ends, then hang up; return when the call is closed
    and what came of it has been played. It may be hung up, or cancelled, from elsewhere.

    `heard`: takes what is to be heard, in real time; None: somebody else reads `playback`. Raises
    what the call, the microphone, `on_event` or `heard` raises first.
    """

    async def speak() -> None:
        async for pcm in microphone:
            if call.ended:
                return
            await call.send(pcm, report=playback.report())
        await call.hang_up()

    try:
        async with asyncio.TaskGroup() as group:
            sides = [group.create_task(speak())]
            if heard is not None:
                sides.append(group.create_task(play(playback, heard)))
            async for event in call:
                playback.take(event)
                on_event(event)
            await _played_out(playback)
            for side in sides:
                side.cancel()
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def play(playback: Playback, heard: Callable[[Floats], None]) -> None:
    """Take from `playback` at the pace of a loudspeaker, until cancelled."""
    began_s, taken = time.monotonic(), 0
    while True:
        await asyncio.sleep(max(0.0, began_s + taken * SLICE_S - time.monotonic()))
        heard(playback.read(round(SLICE_S * playback.rate_hz)))
        taken += 1


async def _played_out(playback: Playback) -> None:
    """The server closes a call when the last answer ought to have been played: by the time that its
    sound needed to get here, it has not."""
    until_s = time.monotonic() + playback.left_s + BEHIND_S
    while playback.is_playing and time.monotonic() < until_s:
        await asyncio.sleep(SLICE_S)
