"""`python -m client live`: speak with a server, by recordings or by microphone."""

import asyncio
import json
import signal
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from client import audio
from client.live.call import LiveCall, LiveClient
from client.live.converse import converse
from client.live.events import Floats, LiveEvent
from client.live.microphones import Device, Recordings
from client.live.playback import Playback
from client.requests import TurnOptions
from python_backends.access import credentials
from python_backends.errors import InvalidInput
from python_backends.speech import SAMPLE_RATE_HZ

LABELS = {
    "partial": "hearing",
    "transcript": "heard",
    "no_speech": "nothing said",
    "paused": "held",
    "resumed": "goes on",
    "interrupted": "interrupted",
    "failed": "failed",
}


@dataclass
class Shown:
    """What is printed, and kept for the file of figures."""

    out: Console
    began_s: float = field(default_factory=time.monotonic)
    events: list[dict[str, Any]] = field(default_factory=list)

    def show(self, event: LiveEvent) -> None:
        """One line an event, but for sound without words."""
        at_s = event.received_ns / 1e9 - self.began_s
        more = {**event.more, "text": event.text} if event.text else dict(event.more)
        if event.error is not None:
            more["error"] = f"{event.error.code}: {event.error.message}"
        self.events.append({"at_s": round(at_s, 3), "type": event.type, "turn": event.turn, **more})
        label = "says" if event.type == "audio" and event.text else LABELS.get(event.type)
        if label:
            told = event.error.message if event.error else event.text.strip()
            self.out.print(Text(f"{at_s:7.2f} s  {label:<13}{told}"))


@dataclass
class Heard:
    """What is heard, kept where a file is to be made of it."""

    wanted: bool
    rate_hz: int = SAMPLE_RATE_HZ
    blocks: list[Floats] = field(default_factory=list)

    def add(self, block: Floats) -> None:
        """float32 [samples], the next."""
        if self.wanted:
            self.blocks.append(block)


def run(arguments: Namespace, options: TurnOptions, out: Console) -> None:
    """The command; InvalidInput unless there is either a recording or a microphone."""
    if bool(arguments.files) == arguments.mic:
        raise InvalidInput("say either recordings or --mic")
    if arguments.mic and arguments.barge_in_ms is not None:
        raise InvalidInput("--barge-in-ms is for recordings")
    shown, heard = Shown(out), Heard(wanted=arguments.out is not None)
    sounds = [audio.read(path) for path in arguments.files]
    try:
        asyncio.run(_run(arguments, options, sounds, shown, heard))
    finally:
        _write(arguments, shown, heard)


async def _run(
    arguments: Namespace, options: TurnOptions, sounds: list[Floats], shown: Shown, heard: Heard
) -> None:
    named = (arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    secure = arguments.tls or any(named)
    access = credentials(*(path or "" for path in named)) if secure else None
    async with LiveClient(arguments.server, credentials=access) as client:
        call = partial(
            client.call,
            partials=arguments.partials,
            lead_ms=arguments.lead_ms,
            traceparent=arguments.traceparent,
            options=options,
        )
        if arguments.mic:
            await _by_microphone(call, shown, heard)
        else:
            barge_in_s = None if arguments.barge_in_ms is None else arguments.barge_in_ms / 1000
            await _by_recordings(call, Recordings(sounds, barge_in_s=barge_in_s), shown, heard)


async def _by_recordings(
    dial: Callable[..., LiveCall], microphone: Recordings, shown: Shown, heard: Heard
) -> None:
    playback = Playback(heard.rate_hz)

    def follow(event: LiveEvent) -> None:
        microphone.follow(event)
        shown.show(event)

    async with dial() as call:
        await converse(call, microphone, playback, on_event=follow, heard=heard.add)
    _tell(shown, microphone.ends_s, playback, list(call.lags_ms))


async def _by_microphone(dial: Callable[..., LiveCall], shown: Shown, heard: Heard) -> None:
    """Ctrl-C hangs up; once more, and what is still to be heard is not."""
    playback, loop = Playback(heard.rate_hz), asyncio.get_running_loop()

    def read(samples: int) -> Floats:
        block = playback.read(samples)
        heard.add(block)
        return block

    def hang_up() -> None:
        device.stop()
        loop.remove_signal_handler(signal.SIGINT)

    with closing(Device(read, rate_hz=playback.rate_hz)) as device:
        loop.add_signal_handler(signal.SIGINT, hang_up)
        shown.out.print(Text("speak; Ctrl-C ends the call"))
        async with dial(rate_hz=playback.rate_hz) as call:
            await converse(call, device, playback, on_event=shown.show)


def _tell(shown: Shown, ends_s: list[float], playback: Playback, lags_ms: list[float]) -> None:
    """What a caller would complain of."""
    firsts: dict[str, float] = {}
    for event in shown.events:
        if event["type"] == "audio" and event.get("ms"):
            firsts.setdefault(event["turn"], event["at_s"] + shown.began_s)
    waits_s = [
        first - max(end for end in ends_s if end <= first)
        for first in firsts.values()
        if any(end <= first for end in ends_s)
    ]
    figures = {"answers ran dry": f"{playback.underruns} times"}
    if waits_s:
        figures["end of recording to first sound"] = f"{statistics.median(waits_s):.2f} s"
    if lags_ms:
        figures["a chunk is listened to after"] = f"{statistics.median(lags_ms):.1f} ms"
    for name, value in figures.items():
        shown.out.print(Text(f"{name:<34}{value}"))


def _write(arguments: Namespace, shown: Shown, heard: Heard) -> None:
    """The files that were asked for, however the call ended."""
    if heard.blocks:
        audio.write(arguments.out, np.concatenate(heard.blocks), heard.rate_hz)
        shown.out.print(Text(f"written     {arguments.out}"))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(shown.events, indent=1, ensure_ascii=False), "utf-8")
        shown.out.print(Text(f"written     {arguments.json}"))
