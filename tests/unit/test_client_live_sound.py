"""What a caller's loudspeaker plays, and when recordings are spoken."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from client.live import LiveEvent, Playback
from client.live.events import Floats, no_sound
from client.live.microphones import Recordings
from client.live.speaker import PATIENCE_S, Speaker
from tests.unit.fake_live import RATE_HZ

TONE = np.full(1600, 0.5, np.float32)
"""0.1 s."""

TINY_S = 0.005


# What is played.


def told(kind: str, turn: str = "a", **more: Any) -> LiveEvent:
    return LiveEvent(kind, turn, "", 0, more)


def sound(
    value: float, samples: int = 4, turn: str = "a", *, last: bool = False, rate_hz: int = RATE_HZ
) -> LiveEvent:
    speech = np.full(samples, value, np.float32)
    return LiveEvent("audio", turn, "", 0, {"last": last}, speech, rate_hz)


def playing(*events: LiveEvent, rate_hz: int = RATE_HZ) -> Playback:
    playback = Playback(rate_hz)
    for each in events:
        playback.take(each)
    return playback


def test_sound_is_read_across_chunks_and_silence_behind_it() -> None:
    playback = playing(sound(1), sound(2, last=True))
    assert playback.read(3).tolist() == [1, 1, 1]
    assert playback.read(7).tolist() == [1, 2, 2, 2, 2, 0, 0]
    assert not playback.is_playing


def test_an_answer_is_held_goes_on_where_it_stopped_or_is_dropped() -> None:
    playback = playing(sound(1), told("paused"))
    assert playback.read(2).tolist() == [0, 0]
    playback.take(told("resumed"))
    assert playback.read(2).tolist() == [1, 1]
    assert playback.left_s == 2 / RATE_HZ
    playback.take(told("paused"))
    playback.take(told("interrupted"))
    assert playback.read(2).tolist() == [0, 0]
    assert (playback.left_s, playback.underruns) == (0, 0)


def test_what_is_told_of_another_answer_changes_nothing() -> None:
    playback = playing(sound(1), told("paused", "b"), told("failed", ""), told("interrupted", "b"))
    assert playback.read(2).tolist() == [1, 1]


def test_a_new_answer_replaces_what_was_left_of_the_old_one() -> None:
    playback = playing(sound(1), told("paused"), sound(2, turn="b"))
    assert playback.read(5).tolist() == [2, 2, 2, 2, 0]
    assert playback.report() == {"turn": "b", "played_ms": 0}


def test_an_answer_that_runs_dry_is_counted_once_however_long_it_is_dry() -> None:
    playback = playing(sound(1))
    playback.read(4)
    assert playback.underruns == 0, "nothing was missing yet"
    playback.read(4)
    playback.read(4)
    assert playback.underruns == 1
    playback.take(told("paused"))
    playback.read(4)
    playback.take(told("resumed"))
    playback.read(4)
    assert playback.underruns == 1
    playback.take(sound(1))
    playback.read(9)
    assert playback.underruns == 2


@pytest.mark.parametrize(
    "end",
    [[sound(1, last=True)], [sound(1), sound(1, 0, last=True)], [sound(1), told("answered")]],
)
def test_the_end_of_an_answer_is_no_underrun(end: list[LiveEvent]) -> None:
    playback = playing(*end)
    playback.read(9)
    playback.read(9)
    assert playback.underruns == 0


def test_there_is_no_underrun_before_the_first_sound() -> None:
    playback = playing(sound(1, 0))
    playback.read(9)
    assert playback.underruns == 0


def test_the_server_is_told_only_news() -> None:
    playback = Playback()
    assert playback.report() is None
    playback.take(sound(1, 240))
    assert playback.report() == {"turn": "a", "played_ms": 0}
    assert playback.report() is None
    playback.read(120)
    assert playback.report() == {"turn": "a", "played_ms": 5}
    playback.take(told("paused"))
    playback.read(120)
    assert playback.report() is None


@pytest.mark.parametrize("rate_hz", [16_000, 48_000])
def test_an_answer_of_another_rate_has_no_seams_between_its_chunks(rate_hz: int) -> None:
    parts = [sound(0.5, 2400, last=number == 4) for number in range(5)]
    playback = playing(*parts, rate_hz=rate_hz)
    heard = playback.read(rate_hz // 2)
    inner = heard[rate_hz // 50 : -rate_hz // 50]
    assert playback.left_s < 0.01
    assert np.abs(inner - 0.5).max() < 0.01


# Who speaks.


def speaker(*sounds: Floats, **options: Any) -> Speaker:
    return Speaker(sounds or (TONE, TONE), **options)


def loud(chunk: Any) -> bool:
    assert chunk.shape == (1600,)
    return bool(chunk.any())


def test_a_recording_is_padded_to_whole_chunks_and_its_end_is_known() -> None:
    somebody = speaker(np.full(2400, 0.5, np.float32), no_sound())
    first, second = somebody.chunk(10.1), somebody.chunk(10.2)
    assert loud(first)
    assert second is not None
    assert second[:800].all()
    assert not second[800:].any()
    assert somebody.begins_s == [10.0]
    assert somebody.ends_s == pytest.approx([10.15])


def test_the_next_recording_is_begun_when_the_answer_has_been_played() -> None:
    somebody = speaker()
    assert loud(somebody.chunk(0.1))
    assert not loud(somebody.chunk(0.2))
    for each in (told("no_speech", ""), told("failed", ""), told("speech_ended"), sound(1)):
        somebody.follow(each, 0.2)
    assert not loud(somebody.chunk(0.3))
    somebody.follow(told("answered"), 0.3)
    assert loud(somebody.chunk(0.4))
    somebody.follow(told("no_speech", "b"), 0.4)
    assert somebody.chunk(0.5) is None


def test_nobody_waits_for_ever_for_an_answer() -> None:
    somebody = speaker()
    somebody.chunk(0.1)
    somebody.follow(sound(1), 20)
    assert not loud(somebody.chunk(0.1 + PATIENCE_S))
    assert loud(somebody.chunk(20 + PATIENCE_S))


def test_whoever_barges_in_begins_during_the_answer() -> None:
    somebody = speaker(barge_in_s=0.15)
    somebody.chunk(0.1)
    somebody.follow(sound(1), 0.2)
    somebody.follow(sound(1), 0.3)
    assert not loud(somebody.chunk(0.3))
    assert loud(somebody.chunk(0.4))
    somebody.follow(told("paused"), 0.4)
    somebody.follow(told("interrupted"), 0.4)
    assert not loud(somebody.chunk(0.5)), "the next answer is waited for"
    somebody.follow(sound(1, turn="b"), 0.5)
    assert not loud(somebody.chunk(0.9)), "there is nothing more to say"


def test_a_noise_during_an_answer_is_not_its_end() -> None:
    somebody = speaker()
    somebody.chunk(0.1)
    somebody.follow(sound(1), 0.2)
    for kind in ("no_speech", "failed"):
        somebody.follow(told(kind, "b"), 0.2)
    assert not loud(somebody.chunk(0.3))
    somebody.follow(told("failed"), 0.3)
    assert loud(somebody.chunk(0.4))


def test_somebody_may_pause_behind_an_answer() -> None:
    somebody = speaker(pause_s=0.2)
    somebody.chunk(0.1)
    somebody.follow(told("answered"), 0.1)
    assert not loud(somebody.chunk(0.2))
    assert loud(somebody.chunk(0.4))


def test_recordings_may_be_said_again_and_again() -> None:
    somebody = speaker(TONE, again=True)
    for number in range(3):
        assert loud(somebody.chunk(number + 0.1))
        somebody.follow(told("answered"), number + 0.1)
    assert somebody.begins_s == pytest.approx([0, 1, 2])


def test_recordings_come_at_the_pace_of_a_microphone() -> None:
    async def hear() -> list[bool]:
        recordings = Recordings([TONE, TONE], chunk_s=TINY_S)
        began_s = time.monotonic()
        chunks = []
        async for chunk in recordings:
            chunks.append(bool(chunk.any()))
            assert time.monotonic() >= began_s + len(chunks) * TINY_S
            if len(chunks) in (22, 45):
                recordings.follow(told("answered"))
        assert len(recordings.ends_s) == 2
        return chunks

    spoken = [True] * 20
    assert asyncio.run(hear()) == [*spoken, False, False, *spoken, False, False, False]
