"""Whole live calls: by recordings, by a microphone that is none, and from the command line."""

import asyncio
import json
import signal
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from client import audio
from client.__main__ import main
from client.live import LiveCall, LiveEvent, Playback, converse
from client.live.events import Floats
from client.live.microphones import Device, Recordings
from python_backends.errors import Cancelled, Overloaded, StageFailed
from tests.unit.fake_live import RATE_HZ, Answering, chunk_failed, event, quiet, with_call
from tests.unit.fake_triton import FakeServer, Message, Script, serving

TONE = np.full(1600, 0.5, np.float32)
"""0.1 s."""

TINY_S = 0.005


# Whole calls.


class Talk:
    """A call by recordings against a server, in short chunks."""

    def __init__(self, sounds: Sequence[Floats], barge_in_s: float | None = None) -> None:
        self.sounds, self.barge_in_s = sounds, barge_in_s
        self.playback = Playback()
        self.events: list[LiveEvent] = []
        self.heard: list[Floats] = []

    def __call__(self, script: Script) -> None:
        with_call(script, self._converse)

    async def _converse(self, call: LiveCall, fake: FakeServer) -> None:
        microphone = Recordings(self.sounds, chunk_s=TINY_S, barge_in_s=self.barge_in_s)

        def follow(event: LiveEvent) -> None:
            microphone.follow(event)
            self.events.append(event)

        await converse(call, microphone, self.playback, on_event=follow, heard=self.heard.append)


def test_what_is_said_is_answered_heard_and_reported() -> None:
    server, talk = Answering(), Talk([TONE, TONE])
    talk(server)
    answer = ["transcript", "audio", "audio", "answered"]
    assert [event.type for event in talk.events] == [*answer, *answer, "closed"]
    assert not talk.playback.is_playing
    assert np.count_nonzero(np.concatenate(talk.heard)) > 0.2 * RATE_HZ
    turn = talk.events[0].turn
    assert server.reports[0]["turn"] == turn
    assert all(set(report) == {"turn", "played_ms"} for report in server.reports)


def test_the_end_of_the_last_answer_is_heard_after_the_call_is_closed() -> None:
    talk = Talk([TONE])
    talk(Answering(chunks=[3]))
    assert np.count_nonzero(np.concatenate(talk.heard)) == 3 * RATE_HZ // 10


def test_an_answer_that_is_barged_into_is_heard_no_more() -> None:
    talk = Talk([TONE, TONE], barge_in_s=0.0)
    talk(Answering(chunks=[1000, 2]))
    kinds = [event.type for event in talk.events]
    assert kinds.index("paused") < kinds.index("interrupted") < len(kinds) - 1
    interrupted = talk.events[kinds.index("interrupted")].turn
    later = talk.events[kinds.index("interrupted") + 1 :]
    assert not [event for event in later if event.turn == interrupted]
    assert talk.playback.turn != interrupted


def test_a_conversation_raises_what_ended_its_call() -> None:
    talk = Talk([TONE])
    with pytest.raises(Overloaded, match="no room"):
        talk(Answering(refuse=Overloaded("no room").to_wire()))


class Broken(Exception):
    pass


async def broken_microphone() -> Any:
    yield np.zeros(10, np.int16)
    raise Broken


async def endless_microphone() -> Any:
    while True:
        yield np.zeros(10, np.int16)
        await asyncio.sleep(TINY_S)


def test_what_breaks_beside_the_call_is_raised_as_it_is() -> None:
    def fail(_: Any) -> None:
        raise Broken

    async def by_microphone(call: LiveCall, fake: FakeServer) -> None:
        with pytest.raises(Broken):
            await converse(call, broken_microphone(), Playback())

    async def by_event(call: LiveCall, fake: FakeServer) -> None:
        recordings = Recordings([TONE], chunk_s=TINY_S)
        with pytest.raises(Broken):
            await converse(call, recordings, Playback(), on_event=fail)

    async def by_loudspeaker(call: LiveCall, fake: FakeServer) -> None:
        with pytest.raises(Broken):
            await converse(call, endless_microphone(), Playback(), heard=fail)

    for use in (by_microphone, by_event, by_loudspeaker):
        with_call(Answering(), use)


@pytest.mark.parametrize("end", [LiveCall.hang_up, LiveCall.cancel])
def test_a_conversation_may_be_ended_from_elsewhere(end: Callable[[LiveCall], Any]) -> None:
    async def use(call: LiveCall, fake: FakeServer) -> None:
        talking = asyncio.create_task(converse(call, endless_microphone(), Playback()))
        await asyncio.sleep(0.05)
        if end is LiveCall.cancel:
            call.cancel()
            with pytest.raises(Cancelled):
                await talking
        else:
            await call.hang_up()
            await talking

    with_call(quiet, use)


# By microphone, which here is none.


class Pretended(ModuleType):
    """As much of sounddevice as is used."""

    class PortAudioError(Exception):
        pass

    def __init__(self, *, works: bool = True) -> None:
        super().__init__("sounddevice")
        self.works = works
        self.closed = False
        self.callback: Callable[..., None]

    def Stream(self, *, callback: Callable[..., None], **_: Any) -> "Pretended":
        if not self.works:
            raise self.PortAudioError("Error querying device -1")
        self.callback = callback
        return self

    def start(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def tick(self, value: float) -> Floats:
        """What is played while this is heard."""
        played = np.zeros((4, 1), np.float32)
        self.callback(np.full((4, 1), value, np.float32), played, 4, None, None)
        return played[:, 0]


def test_a_device_gives_what_it_hears_and_plays_until_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretended = Pretended()
    monkeypatch.setitem(sys.modules, "sounddevice", pretended)

    async def use() -> None:
        device = Device(lambda samples: np.full(samples, 0.5, np.float32))
        assert pretended.tick(1.0).tolist() == [0.5] * 4
        assert (await anext(device)).tolist() == [32_767] * 4
        device.stop()
        assert pretended.tick(1.0).tolist() == [0.5] * 4
        assert [chunk async for chunk in device] == []
        device.close()
        assert pretended.closed

    asyncio.run(use())


def test_ctrl_c_ends_a_call_by_microphone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended = Pretended()
    monkeypatch.setitem(sys.modules, "sounddevice", pretended)
    stopping = threading.Event()

    def speak() -> None:
        while not hasattr(pretended, "callback"):
            time.sleep(TINY_S)
        for value in (0.5, 0.0, 0.0, 0.0):
            pretended.tick(value)
        signal.raise_signal(signal.SIGINT)
        while not stopping.wait(TINY_S):
            pretended.tick(0.0)

    out = tmp_path / "heard.wav"
    with serving(Answering()) as (fake, address):
        speaking = threading.Thread(target=speak)
        speaking.start()
        try:
            assert main(["live", "--mic", "--server", address, "--out", str(out)]) == 0
        finally:
            stopping.set()
            speaking.join()
    assert pretended.closed
    assert "says         Sure." in capsys.readouterr().out
    assert fake.requests[0].parameters["rate_hz"].int64_param == RATE_HZ
    with wave.open(str(out)) as written:
        assert written.getnframes() > 0


# The command line.


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "tone.wav"
    audio.write(path, TONE, 16_000)
    return path


def test_a_call_by_recordings_is_shown_and_written(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, events = tmp_path / "deep" / "heard.wav", tmp_path / "deep" / "events.json"
    files = [str(recording), str(recording), "--out", str(out), "--json", str(events)]
    options = ["--partials", "--lead-ms", "300", "--traceparent", f"00-{'1' * 32}-{'2' * 16}-01"]
    with serving(Answering()) as (fake, address):
        assert main(["live", *files, *options, "--seed", "3", "--server", address]) == 0
    shown = capsys.readouterr().out
    assert shown.count("heard        Two burgers.") == shown.count("says         Sure.") == 2
    assert "end of recording to first sound" in shown
    assert [one["type"] for one in json.loads(events.read_text())].count("answered") == 2
    with wave.open(str(out)) as written:
        assert written.getframerate() == RATE_HZ
        assert np.frombuffer(written.readframes(9 * RATE_HZ), np.int16).any()
    asked = fake.requests[0].parameters
    assert asked["lead_ms"].int64_param == 300
    assert asked["partials"].bool_param
    assert asked["seed"].int64_param == 3
    assert asked["traceparent"].string_param.startswith("00-1111")


def test_what_was_told_before_a_call_failed_is_written_all_the_same(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(request: Any, context: Any) -> Iterator[Message]:
        yield event(request, "failed", turn="c.1", error=Overloaded("no room").to_wire())
        yield chunk_failed(request, StageFailed("the stage broke", stage="live").to_wire())

    events = tmp_path / "events.json"
    with serving(script) as (_, address):
        assert main(["live", str(recording), "--json", str(events), "--server", address]) == 1
    assert capsys.readouterr().err == "error: the stage broke\n"
    (only,) = json.loads(events.read_text())
    assert (only["type"], only["error"]) == ("failed", "OVERLOADED: no room")


@pytest.mark.parametrize(
    ("arguments", "module", "reason"),
    [
        ([], None, "say either recordings or --mic"),
        (["a.wav", "--mic"], None, "say either recordings or --mic"),
        (["--mic", "--barge-in-ms", "5"], None, "--barge-in-ms is for recordings"),
        (["nowhere.wav"], None, "nowhere.wav cannot be opened"),
        (["--mic"], None, "pip install sounddevice"),
        (["--mic"], Pretended(works=False), "no microphone and loudspeaker to use: Error querying"),
    ],
)
def test_a_call_that_cannot_be_is_refused_in_one_line(
    arguments: list[str],
    module: ModuleType | None,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    assert main(["live", *arguments, "--server", "127.0.0.1:1"]) == 1
    shown = capsys.readouterr()
    assert reason in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
