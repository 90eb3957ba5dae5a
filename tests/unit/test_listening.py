"""A listening stage: turns of speech and their words, and whose call is whose."""

import json
import time
from itertools import repeat
from random import Random
from typing import Any

import numpy as np
import pytest

from python_backends.bridge import CancelTurn
from python_backends.listening.backend import CallsBackend
from tests import fakes
from tests.unit.listening_world import (
    STAGES,
    WAIT_S,
    Caller,
    kinds,
    listening,
    silence,
    speech,
    wait_for,
)

ORDER = np.concatenate([silence(0.5), speech(1.0), silence(1.0)])
ONE_TURN = ["speech_started", "speech_ended", "transcript", "closed"]


def test_a_turn_is_told_from_its_beginning_to_its_words() -> None:
    with listening() as world:
        events = world.caller().whole(ORDER)
    assert kinds(events) == ONE_TURN
    started, ended, transcript, _ = events
    assert {one["turn"] for one in events[:3]} == {"call1.1"}
    assert started["at_ms"] == pytest.approx(500, abs=40)
    assert ended["at_ms"] == pytest.approx(1500, abs=40)
    assert (ended["reason"], transcript["text"]) == ("silence", "Two burgers.")
    assert 400 <= ended["waited_ms"] <= 640


def test_words_are_there_when_the_turn_ends_since_they_were_asked_for_in_its_pause() -> None:
    with listening() as world:
        caller = world.caller()
        caller.say(np.concatenate([speech(1.0), silence(0.3)]), start=True)
        assert wait_for(lambda: len(world.heard) == 1)
        caller.say(silence(1.0), end=True)
        assert kinds(caller.ended()) == ONE_TURN
    (sound,) = world.heard
    assert sound.size / 16_000 == pytest.approx(1.2, abs=0.05)


def test_a_pause_inside_a_turn_is_not_its_end_and_its_draft_is_dropped() -> None:
    with listening() as world:
        world.hold.clear()
        caller = world.caller()
        caller.say(np.concatenate([speech(1.0), silence(0.3)]), start=True)
        assert world.fake.arrived.acquire(timeout=WAIT_S)
        caller.say(speech(1.0))
        assert wait_for(lambda: len(world.dropped) == len(STAGES))
        world.hold.set()
        caller.say(silence(1.5), end=True)
        events = caller.ended()
    assert kinds(events) == ONE_TURN
    assert events[1]["at_ms"] == pytest.approx(2300, abs=40)
    assert world.heard[-1].size / 16_000 == pytest.approx(2.5, abs=0.05)


@pytest.mark.parametrize(
    ("words", "waited_ms"), [("A burger.", 400), ("hmm hm", 600), ("And a", 1000)]
)
def test_how_long_is_waited_depends_on_what_was_said(words: str, waited_ms: int) -> None:
    with listening() as world:
        world.words = lambda sound: words
        caller = world.caller()
        caller.say(np.concatenate([speech(1.0), silence(0.3)]), start=True)
        assert wait_for(lambda: len(world.heard) == 1)
        caller.say(silence(0.03))
        for _ in range(40):
            caller.say(silence(0.05)).wait()
        ended = caller.until("speech_ended")
        caller.say(end=True)
        caller.ended()
    assert ended["waited_ms"] == pytest.approx(waited_ms, abs=100)


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 44_100])
def test_sound_in_odd_chunks_is_the_same_bit_for_bit(rate_hz: int) -> None:
    sound = np.concatenate(
        [
            part(0.6, rate_hz)
            for part in (silence, speech, silence, silence, speech, silence, silence)
        ]
    )
    random = Random(7)
    with listening() as world:
        whole = world.caller(rate_hz=rate_hz).whole(sound)
        at_once, world.heard = world.heard, []
        odd = world.caller(rate_hz=rate_hz).whole(sound, iter(lambda: random.randrange(1, 4001), 0))
        in_parts = world.heard
    speaking = [[one for one in told if "at_ms" in one] for told in (whole, odd)]
    assert kinds(speaking[0]) == kinds(speaking[1]) == 2 * ["speech_started", "speech_ended"]
    assert [one["at_ms"] for one in speaking[0]] == [one["at_ms"] for one in speaking[1]]
    assert kinds(whole).count("transcript") == kinds(odd).count("transcript") == 2
    finals = [{sound.tobytes() for sound in sounds} for sounds in (at_once, in_parts)]
    assert finals[0] <= finals[1]
    assert len(finals[0]) == 2


def test_a_chunk_is_answered_when_it_has_been_listened_to() -> None:
    with listening() as world:
        caller = world.caller()
        caller.say(silence(0.1), start=True)
        for sound in (silence(0.1), silence(0.001), np.zeros(1, np.uint8), None):
            assert caller.say(sound).wait() == []


def test_endless_silence_is_no_turn_and_no_sound_is_kept() -> None:
    with listening() as world:
        caller = world.caller()
        caller.say(silence(1), start=True)
        for _ in range(30):
            caller.say(silence(1)).wait()
        caller.say(end=True)
        assert kinds(caller.ended()) == ["no_speech", "closed"]


def test_endless_speech_is_cut_where_it_is_too_long() -> None:
    with listening(max_turn_s=2) as world:
        events = world.caller().whole(speech(5.0), repeat(6400))
    assert [one["reason"] for one in events if one["type"] == "speech_ended"] == [
        "length",
        "length",
        "closed",
    ]
    assert kinds(events).count("transcript") == 3


def test_speech_without_words_is_told_apart() -> None:
    with listening() as world:
        world.words = lambda sound: ""
        assert kinds(world.caller().whole(ORDER)) == [
            "speech_started",
            "speech_ended",
            "no_speech",
            "closed",
        ]


def test_who_wants_it_is_told_what_was_said_so_far() -> None:
    with listening(partial_ms=500) as world:
        caller = world.caller(partials=True)
        caller.say(speech(0.2), start=True)
        for _ in range(15):
            caller.say(speech(0.2)).wait()
        assert caller.until("partial")["text"] == "Two burgers."
        caller.say(silence(1.5), end=True)
        events = caller.ended()
    assert kinds(events)[-3:] == ["speech_ended", "transcript", "closed"]


def test_a_caller_who_stops_sending_in_the_middle_of_a_turn_has_ended_it() -> None:
    with listening(gap_ms=150) as world:
        caller = world.caller()
        caller.say(speech(1.0), start=True)
        assert caller.until("speech_ended")["reason"] == "gap"
        caller.until("transcript")
        caller.say(np.concatenate([speech(1.0), silence(1.5)]), end=True)
        assert kinds(caller.ended()).count("transcript") == 2


def test_a_call_without_sound_for_too_long_is_over() -> None:
    with listening(idle_s=1) as world:
        caller = world.caller()
        caller.say(silence(0.1), start=True)
        assert "DEADLINE_MISSED" in caller.error()
        assert "INVALID_INPUT" in caller.say(silence(0.1)).error()
        assert kinds(caller.whole(ORDER)) == ONE_TURN


@pytest.mark.parametrize("end", [False, True])
def test_a_chunk_without_a_beginning_is_refused(end: bool) -> None:
    """Public case E5."""
    with listening() as world:
        caller = world.caller(7)
        assert "needs sequence_start" in caller.say(silence(0.1), end=end).error()
        caller.whole(ORDER)
        assert "is over" in caller.say(silence(0.1)).error()
        assert kinds(caller.whole(ORDER)) == ONE_TURN


def test_two_callers_of_one_id_the_second_is_refused_and_the_first_goes_on() -> None:
    with listening() as world:
        first, second = world.caller(7), world.caller(7)
        first.say(speech(0.5), start=True)
        assert "another request id" in second.say(speech(0.5), start=True).error()
        for end in (False, True):
            assert "another request id" in second.say(speech(0.5), end=end).error()
        first.say(np.concatenate([speech(0.5), silence(1.0)]), end=True)
        assert kinds(first.ended()) == ONE_TURN
    assert world.heard[-1].size / 16_000 == pytest.approx(1.2, abs=0.05)


def test_a_second_start_of_the_same_caller_begins_anew() -> None:
    with listening() as world:
        caller = world.caller(7)
        first = caller.say(speech(1.0), start=True)
        assert kinds(caller.whole(ORDER)) == ONE_TURN
        assert "CANCELLED" in first.error()


def test_one_caller_too_many_is_refused_and_may_come_when_another_has_gone() -> None:
    with listening(max_calls=1) as world:
        first, second = world.caller(), world.caller()
        first.say(silence(0.1), start=True)
        second.say(silence(0.1), start=True)
        assert "OVERLOADED" in second.error()
        assert "retry_after_ms" in second.error()
        first.say(end=True)
        first.ended()
        assert kinds(second.whole(ORDER)) == ONE_TURN


def test_a_call_with_a_long_id_is_refused() -> None:
    with listening() as world:
        caller = Caller(world.inbox, "c" * 97, 1)
        caller.say(ORDER, start=True)
        assert "96 are accepted" in caller.error()


def test_a_stage_that_is_drained_serves_the_calls_that_are_there_and_takes_no_more() -> None:
    with listening() as world:
        first, second = world.caller(), world.caller()
        first.say(ORDER, start=True)
        first.until("transcript")
        stage = CallsBackend()
        stage._calls = world.calls
        assert [stage.obey(order) for order in ({"drain": 1}, {"open": []}, [])] == [None] * 3
        assert stage.obey({"drain": True}) == {}
        second.say(ORDER, start=True)
        assert "reason=draining" in second.error()
        first.say(end=True)
        assert kinds(first.ended()) == ONE_TURN


def test_a_caller_who_vanishes_leaves_nothing_behind() -> None:
    with listening(max_calls=1) as world:
        world.hold.clear()
        caller = world.caller()
        caller.say(np.concatenate([speech(1.0), silence(0.3)]), start=True)
        assert world.fake.arrived.acquire(timeout=WAIT_S)
        assert caller.line is not None
        caller.line.cancelled = True
        assert "CANCELLED" in caller.error()
        assert wait_for(lambda: len(world.dropped) == len(STAGES))
        world.hold.set()
        assert kinds(world.caller().whole(ORDER)) == ONE_TURN


def test_a_call_can_be_cancelled_by_its_id() -> None:
    with listening() as world:
        caller = world.caller()
        caller.say(speech(1.0), start=True)
        world.inbox.put(CancelTurn("call1"))
        assert "CANCELLED" in caller.error()


def test_what_cannot_be_transcribed_is_told_and_the_call_goes_on() -> None:
    with listening() as world:
        caller = world.caller()
        world.words = lambda sound: None
        caller.say(np.concatenate([speech(1.0), silence(1.5)]), start=True)
        failed = caller.until("failed")
        assert "the encoder broke" in failed["error"]
        world.words = lambda sound: "Two burgers."
        caller.say(np.concatenate([speech(1.0), silence(1.5)]), end=True)
        assert kinds(caller.ended())[-4:] == ONE_TURN


def test_only_so_many_turns_are_transcribed_at_once_and_the_others_wait() -> None:
    """Sixty-four callers who end together took 600 MB on their way."""
    with listening(max_calls=8, max_transcripts=2) as world:
        world.hold.clear()
        callers = [world.caller(number + 1) for number in range(6)]
        for caller in callers:
            caller.say(ORDER, start=True, end=True)
        for caller in callers:
            caller.until("speech_ended")
        assert wait_for(lambda: len(world.fake.requests) == 2)
        time.sleep(0.1)
        assert len(world.fake.requests) == 2
        world.hold.set()
        assert [kinds(caller.ended()) for caller in callers] == [ONE_TURN] * 6
    assert len(world.heard) == 6


def test_when_voice_activity_fails_the_call_is_over() -> None:
    with listening() as world:
        fakes.MODELS["vad_step"] = lambda request: fakes.refusal("out of order")
        caller = world.caller()
        caller.say(silence(1.0), start=True)
        assert "out of order" in caller.error()


def test_many_callers_share_passes_and_do_not_hear_each_other() -> None:
    passes: list[int] = []
    with listening(max_calls=16) as world:
        model = fakes.MODELS["vad_step"]

        def counted(request: fakes.InferenceRequest) -> fakes.InferenceResponse:
            passes.append(len(request.values()["AUDIO"]))
            return model(request)

        fakes.MODELS["vad_step"] = counted
        callers = [world.caller(number + 1) for number in range(16)]
        for at in range(0, ORDER.size, 3200):
            for number, caller in enumerate(callers):
                sound = ORDER[at : at + 3200] if number % 2 else np.zeros(3200, np.uint8)
                caller.say(sound, start=at == 0, end=at + 3200 >= ORDER.size)
        told = [kinds(caller.ended()) for caller in callers]
    assert told == [["no_speech", "closed"], ONE_TURN] * 8
    assert max(passes) > 1


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"PCM": np.zeros((2, 10), np.uint8)}, "PCM has shape"),
        ({"PCM": np.zeros((1, 2_000_000), np.uint8)}, "at most"),
        ({"REPORT": fakes.text("[1]")}, "JSON object"),
        ({"REPORT": fakes.text(json.dumps({"played_ms": 1}))}, "calls that are answered"),
    ],
)
def test_a_chunk_that_is_none_is_refused_alone(inputs: dict[str, Any], told: str) -> None:
    with listening() as world:
        caller = world.caller()
        caller.say(speech(1.0), start=True)
        assert told in caller.say(**inputs).error()
        caller.say(silence(1.5), end=True)
        assert kinds(caller.ended()) == ONE_TURN
