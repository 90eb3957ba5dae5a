"""Callers of a listening stage, a voice activity model that hears loudness, and a scripted
recogniser."""

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import Arrived, Closed, Inbox, Request
from python_backends.listening.loop import Calls
from python_backends.listening.settings import ListenSettings
from python_backends.listening.vad import MOST_WINDOWS
from python_backends.walking.route import Route, Step
from tests import fakes
from tests.unit.fake_triton import FakeServer, Message, failure, message, serving, texts

RATE_HZ = 16_000
STAGES = ("encode", "asr_decode")
SETTINGS = ListenSettings(
    server="",
    vad_model="vad_step",
    transcribe_model="transcribe",
    stages=",".join(STAGES),
    max_calls=3,
    idle_s=60,
    gap_ms=60_000,
    max_turn_s=10,
    closed_ms=300,
    complete_ms=400,
    unknown_ms=600,
    hanging_ms=1000,
    partial_ms=1000,
    no_progress_ms=5000,
)
ROUTE = Route((Step("transcribe", {"AUDIO": "AUDIO"}, {"HEARD": "HEARD"}),), ("HEARD",))
WAIT_S = 10.0
Bytes = NDArray[np.uint8]


def speech(seconds: float, rate_hz: int = RATE_HZ) -> Bytes:
    """Something loud, no two samples alike in a row."""
    return _pcm(8000 * np.sin(np.arange(round(seconds * rate_hz)) * 0.7))


def silence(seconds: float, rate_hz: int = RATE_HZ) -> Bytes:
    return _pcm(np.zeros(round(seconds * rate_hz)))


def _pcm(values: NDArray[Any]) -> Bytes:
    return np.frombuffer(values.astype("<i2").tobytes(), np.uint8)


def loud(request: fakes.InferenceRequest) -> fakes.InferenceResponse:
    """The model `vad_step`: a loud window is speech. Its state counts a caller's windows."""
    given = request.values()
    windows = given["AUDIO"]
    assert windows.shape[2] == 512
    assert (given["WINDOWS"] >= 1).all()
    assert given["WINDOWS"].max() == windows.shape[1] <= MOST_WINDOWS
    return fakes.answer(
        SPEECH_PROBABILITY=(np.abs(windows).mean(2) > 0.05).astype(np.float32),
        STATE_OUT=given["STATE_IN"] + given["WINDOWS"][:, :, None],
    )


@dataclass
class Caller:
    """One caller; `events` are those told so far."""

    inbox: Inbox
    call: str
    sequence: int | str
    parameters: dict[str, Any] = field(default_factory=dict)
    chunks: list[fakes.InferenceResponseSender] = field(default_factory=list)
    line: fakes.InferenceResponseSender | None = None

    def say(
        self,
        sound: Bytes | None = None,
        *,
        start: bool = False,
        end: bool = False,
        report: Any = None,
        **inputs: NDArray[Any],
    ) -> fakes.InferenceResponseSender:
        """Send one chunk."""
        given: dict[str, NDArray[Any]] = dict(inputs)
        if sound is not None:
            given["PCM"] = sound[None]
        if report is not None:
            given["REPORT"] = fakes.text(report if isinstance(report, str) else json.dumps(report))
        native = fakes.arriving(
            given,
            request_id=self.call if start else f"{self.call}/{len(self.chunks)}",
            parameters=self.parameters if start else {},
            sequence=self.sequence,
            start=start,
            end=end,
        )
        request = Request(native, "listen", lambda _: None)
        request.parse_options()
        if start:
            self.line = native.sender
        else:
            self.chunks.append(native.sender)
        self.inbox.put(Arrived(request))
        return native.sender

    def whole(self, sound: Bytes, sizes: Iterator[int] | None = None) -> list[dict[str, Any]]:
        """A call of this sound alone, in chunks of these sizes; its events."""
        first, at = True, 0
        while first or at < sound.size:
            size = next(sizes) if sizes else sound.size
            part = sound[at : at + size]
            at += size
            self.say(part, start=first, end=at >= sound.size)
            first = False
        return self.ended()

    @property
    def events(self) -> list[dict[str, Any]]:
        assert self.line is not None
        told = [
            tensor.as_numpy()
            for response in list(self.line.responses)
            for tensor in response.output_tensors()
            if tensor.name() == "EVENT"
        ]
        return [json.loads(one.item()) for one in told]

    def until(self, kind: str, times: int = 1) -> dict[str, Any]:
        """The event of this kind, once it has been told so often."""

        def found() -> list[dict[str, Any]]:
            return [one for one in self.events if one["type"] == kind]

        assert wait_for(lambda: len(found()) >= times), f"no {kind}, but {self.events}"
        return found()[times - 1]

    def ended(self) -> list[dict[str, Any]]:
        """All events, once the call is over."""
        assert self.line is not None
        self.line.wait()
        return self.events

    def error(self) -> str:
        assert self.line is not None
        return self.line.error()


class World:
    """`words` says what is heard in a sound; None: the recogniser fails."""

    def __init__(self) -> None:
        self.words: Callable[[NDArray[np.float32]], str | None] = lambda sound: "Two burgers."
        self.heard: list[NDArray[np.float32]] = []
        self.dropped: list[str] = []
        """Transcripts that stages were told not to make."""

        self.hold = threading.Event()
        self.hold.set()
        self.fake: FakeServer
        self.inbox: Inbox
        self.calls: Calls
        self._callers = 0

    def script(self, request: Any, context: Any) -> Iterator[Message]:
        tensors = dict(
            zip((one.name for one in request.inputs), request.raw_input_contents, strict=True)
        )
        if "CONTROL" in tensors:
            self.dropped.append(json.loads(tensors["CONTROL"][4:])["cancel"])
            yield message(request, final=True)
            return
        sound = np.frombuffer(tensors["AUDIO"], np.float32)
        self.hold.wait(WAIT_S)
        words = self.words(sound)
        self.heard.append(sound)
        if words is None:
            yield failure(request, "[tristage code=INTERNAL stage=encode] the encoder broke")
        else:
            yield message(request, final=True, HEARD=texts(words))

    def caller(self, sequence: int | str = 0, **parameters: Any) -> Caller:
        self._callers += 1
        return Caller(self.inbox, f"call{self._callers}", sequence, parameters)


def nobody(models: Collection[str]) -> list[tuple[str, int]]:
    """Stages have no processes here."""
    return []


W = TypeVar("W", bound=World)


def listening(**changed: Any) -> AbstractContextManager[World]:
    """A listening stage, with these settings changed."""
    settings = replace(SETTINGS, **changed)
    return running(World(), lambda address: Calls(settings, address, route=ROUTE, find=nobody))


@contextmanager
def running(world: W, make_calls: Callable[[str], Calls]) -> Iterator[W]:
    """`world` around the stage that is made for the address of its models."""
    fakes.MODELS["vad_step"] = loud
    with serving(world.script) as (world.fake, address):
        world.inbox = Inbox()
        world.calls = calls = make_calls(address)
        failed: list[BaseException] = []

        def run() -> None:
            try:
                calls.run(world.inbox)
            except BaseException as fault:
                failed.append(fault)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield world
        finally:
            world.hold.set()
            world.inbox.put(Closed())
            thread.join()
        if failed:
            raise failed[0]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [one["type"] for one in events]


def wait_for(met: Callable[[], bool]) -> bool:
    """Whether it comes to be so in time."""
    deadline = time.monotonic() + WAIT_S
    while not met() and time.monotonic() < deadline:
        time.sleep(0.005)
    return met()
