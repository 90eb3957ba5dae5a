"""A call that is answered: order, pace, interruptions, and what the history holds."""

from typing import Any

import numpy as np
import pytest

from python_backends.live_call.backchannel import is_backchannel
from python_backends.live_call.said import Said
from tests import fakes
from tests.unit.listening_world import Caller, kinds, silence, speech, wait_for
from tests.unit.live_world import LiveWorld, after, live, rest

ASK = np.concatenate([speech(1.0), silence(1.0)])


def standing() -> float:
    """A clock that stands."""
    return 0.0


SHORT = [("Two burgers and a coke.", [0.1] * 4), ("That makes ten dollars.", [0.1] * 4)]
LONG = [("Two burgers and a coke.", [0.25] * 4), ("That makes ten dollars.", [0.25] * 4)]


def asked(world: LiveWorld, **parameters: object) -> Caller:
    """A caller who has said something."""
    caller = world.caller(**parameters)
    caller.say(ASK, start=True)
    return caller


def until_played(caller: Caller, seconds: float) -> str:
    """Report that so much of the first answer has been played; its turn."""
    turn = str(caller.until("audio", 2)["turn"])
    caller.say(silence(0.05), report={"turn": turn, "played_ms": round(1000 * seconds)}).wait()
    return turn


def test_what_was_said_is_answered_in_order_and_the_call_ends_when_it_has_been_played() -> None:
    with live() as world:
        events = world.caller().whole(ASK)
    assert kinds(events) == [
        "speech_started",
        "speech_ended",
        "transcript",
        "audio",
        "audio",
        "answered",
        "closed",
    ]
    assert {one["turn"] for one in events[:-1]} == {"call1.1"}
    assert [one["text"] for one in events[3:5]] == ["Sure.", "Fries?"]
    assert [(one["at_ms"], one["ms"], one["last"]) for one in events[3:5]] == [
        (0, 200, False),
        (200, 300, True),
    ]
    assert events[5]["said"] == "Sure. Fries?"


def test_sound_comes_with_its_rate_and_its_spans() -> None:
    with live() as world:
        caller = world.caller()
        caller.whole(ASK)
    assert caller.line is not None
    told = [one for one in caller.line.values() if "SPEECH" in one]
    assert [one["SPEECH"].size for one in told] == [4800, 7200]
    assert all(one["SAMPLE_RATE"].item() == 24_000 and "EVENTS" in one for one in told)


def test_a_turn_knows_the_ones_before_it_and_is_asked_with_the_callers_options() -> None:
    with live() as world:
        world.hearing("Two burgers.", "Fries, please.")
        caller = asked(world, voice="baritone", partials=True, lead_ms=300)
        caller.until("answered")
        caller.say(ASK, end=True)
        caller.ended()
    assert [one["heard"] for one in world.turns] == ["Two burgers.", "Fries, please."]
    assert world.turns[1]["history"] == ["Two burgers.", "Sure. Fries?"]
    assert world.turns[0]["options"] == {"voice"}


def test_a_caller_may_bring_a_history() -> None:
    with live() as world:
        caller = world.caller()
        lines = '[{"role": "assistant", "text": "Welcome!"}]'
        caller.say(ASK, start=True, end=True, HISTORY=fakes.text(lines))
        caller.ended()
        wrong = world.caller()
        wrong.say(ASK, start=True, HISTORY=fakes.text("{}"))
        assert "HISTORY is not a JSON list" in wrong.error()
    assert world.turns[0]["history"] == ["Welcome!"]


def test_an_answer_is_sent_no_more_than_its_lead_ahead() -> None:
    with live(standing, lead_ms=350) as world:
        world.pieces = LONG
        caller = asked(world)
        caller.until("audio", 2)
        rest(0.3)
        assert kinds(caller.events).count("audio") == 2
        until_played(caller, 0.2)
        caller.until("audio", 3)
        rest(0.1)
        assert kinds(caller.events).count("audio") == 3


def test_speech_holds_an_answer_and_words_interrupt_it() -> None:
    with live(standing) as world:
        world.pieces = LONG
        world.hearing("Two burgers.", "No, one burger.")
        caller = asked(world)
        turn = until_played(caller, 0.5)
        caller.until("audio", 4)
        caller.say(speech(0.4))
        paused = caller.until("paused")
        assert paused["turn"] == turn
        caller.say(silence(1.0))
        interrupted = caller.until("interrupted")
        assert interrupted["played_ms"] == 500
        assert interrupted["said"] == "Two burgers"
        assert "audio" not in between(caller, "paused", "interrupted")
        assert wait_for(lambda: sounds(caller)[-1]["turn"] == "call1.2")
        at = kinds(caller.events).index("interrupted")
        assert {one["turn"] for one in sounds(caller, at)} == {"call1.2"}
    assert world.turns[1]["history"] == ["Two burgers.", "Two burgers"]
    assert world.dropped[0].split("~")[0] == turn


def between(caller: Caller, first: str, second: str) -> list[str]:
    """Kinds of events between two."""
    told = kinds(caller.events)
    return told[told.index(first) + 1 : told.index(second)]


def sounds(caller: Caller, since: int = 0) -> list[dict[str, Any]]:
    """The chunks of answers among the events from a place on."""
    return [one for one in caller.events[since:] if one["type"] == "audio"]


@pytest.mark.parametrize("words", ["", "Uh-huh.", "Okay, yeah."])
def test_a_cough_or_a_backchannel_does_not_interrupt(words: str) -> None:
    with live() as world:
        world.pieces = LONG
        world.hearing("Two burgers.", words)
        caller = asked(world)
        until_played(caller, 0.4)
        caller.say(np.concatenate([speech(0.4), silence(1.0)]))
        paused, resumed = caller.until("paused"), caller.until("resumed")
        assert resumed["played_ms"] == paused["played_ms"]
        caller.say(silence(0.1), end=True)
        events = caller.ended()
    assert kinds(events)[-2:] == ["answered", "closed"]
    assert [one["at_ms"] for one in sounds(caller)] == list(range(0, 2000, 250))
    assert len(world.turns) == 1


def test_long_speech_interrupts_before_its_words_are_known() -> None:
    with live() as world:
        world.pieces = LONG
        caller = asked(world)
        until_played(caller, 0.4)
        caller.say(speech(1.0))
        caller.until("interrupted")
        assert wait_for(lambda: bool(world.dropped))


def test_who_goes_on_before_anything_of_the_answer_was_heard_had_not_finished() -> None:
    with live() as world:
        world.thinking.clear()
        world.hearing("Two burgers.", "And a coke.")
        caller = asked(world)
        assert wait_for(lambda: len(world.turns) == 1)
        caller.say(ASK)
        interrupted = caller.until("interrupted")
        assert (interrupted["played_ms"], interrupted["said"]) == (0, "")
        world.thinking.set()
        caller.say(silence(0.1), end=True)
        events = caller.ended()
    assert world.turns[1]["heard"] == "Two burgers. And a coke."
    assert world.turns[1]["history"] == []
    assert {one["turn"] for one in events if one["type"] == "audio"} == {"call1.2"}
    assert "paused" not in kinds(events)


def test_who_speaks_on_before_they_were_understood_is_not_talked_into() -> None:
    with live() as world:
        world.hold.clear()
        world.hearing("Two burgers.", "And a coke.")
        caller = world.caller()
        caller.say(ASK, start=True)
        caller.until("speech_ended")
        caller.say(speech(0.6))
        caller.until("speech_started", 2)
        world.hold.set()
        caller.until("transcript")
        assert wait_for(lambda: len(world.turns) == 1)
        rest(0.1)
        assert sounds(caller) == []
        caller.say(silence(1.0), end=True)
        events = caller.ended()
    assert world.turns[1]["heard"] == "Two burgers. And a coke."
    assert {one["turn"] for one in sounds(caller)} == {"call1.2"}
    assert "resumed" not in kinds(events)


def test_hanging_up_in_silence_resumes_nothing() -> None:
    with live() as world:
        caller = world.caller()
        caller.say(silence(0.5), start=True, end=True)
        assert kinds(caller.ended()) == ["no_speech", "closed"]


def test_a_last_chunk_whose_report_cannot_be_answered_ends_that_call_alone() -> None:
    with live() as world:
        world.pieces = LONG
        caller, other = asked(world), world.caller()
        caller.until("audio")
        other.say(silence(0.1), start=True)
        sent = caller.line
        assert sent is not None

        def broken(response: Any = None, flags: int = 0) -> None:
            if not flags:
                raise fakes.TritonModelException("the server takes no more")
            fakes.InferenceResponseSender.send(sent, response, flags)

        sent.send = broken  # type: ignore[method-assign]
        caller.say(silence(0.1), report={"stop": True}, end=True)
        assert "could not be sent" in caller.error()
        other.say(ASK, end=True)
        assert kinds(other.ended())[-1] == "closed"


def test_callers_who_call_themselves_alike_do_not_stop_each_other() -> None:
    with live() as world:
        world.pieces, world.pause_s = LONG, 0.05
        callers = [Caller(world.inbox, "same", sequence) for sequence in (1, 2)]
        for caller in callers:
            caller.say(ASK, start=True)
        for caller in callers:
            caller.until("audio")
        callers[0].say(report={"stop": True})
        callers[0].until("interrupted")
        callers[1].until("answered")


def test_a_caller_can_stop_an_answer_without_a_word() -> None:
    with live(standing) as world:
        world.pieces = LONG
        caller = asked(world)
        until_played(caller, 0.4)
        caller.until("audio", 4)
        caller.say(report={"stop": True})
        assert caller.until("interrupted")["said"] == "Two"
        rest(0.4)
        assert after(caller, "interrupted") == []


@pytest.mark.parametrize("cancel_s", [0.0, 0.02, 0.15, 0.4])
def test_nothing_of_a_cancelled_answer_comes_after_its_cancel(cancel_s: float) -> None:
    """Public case M1, at 0 ms, before the first chunk, in the middle, and at the last."""
    with live(lead_ms=2000) as world:
        world.pieces, world.pause_s = SHORT, 0.05
        caller = world.caller()
        caller.say(silence(0.1), start=True)
        for turn in range(1, 5):
            caller.say(ASK)
            caller.until("transcript", turn)
            rest(cancel_s)
            caller.say(report={"stop": True}).wait()
        rest(0.2)
        caller.say(ASK, end=True)
        events = caller.ended()
    over: set[str] = set()
    for one in events:
        if one["type"] == "interrupted":
            over.add(one["turn"])
        assert one["type"] != "audio" or one["turn"] not in over
    assert len(over) == 4
    assert events[-2]["type"] == "answered"
    assert events[-2]["said"].startswith("Two burgers and a coke.")


def test_a_turn_that_fails_is_told_and_the_call_goes_on() -> None:
    with live() as world:
        world.refuse = "[tristage code=OVERLOADED stage=turn retry_after_ms=250] full"
        caller = asked(world)
        failed = caller.until("failed")
        assert "retry_after_ms=250" in failed["error"]
        world.refuse = ""
        caller.say(ASK, end=True)
        events = caller.ended()
    assert kinds(events)[-2:] == ["answered", "closed"]
    assert world.turns[1]["history"] == []


def test_a_caller_who_vanishes_stops_the_turn() -> None:
    with live() as world:
        world.pieces, world.pause_s = LONG, 0.2
        caller = asked(world)
        caller.until("audio")
        assert caller.line is not None
        caller.line.cancelled = True
        assert "CANCELLED" in caller.error()
        assert wait_for(lambda: [name.split("~")[0] for name in world.dropped] == ["call1.1"])
        assert "done" not in world.turns[0]


@pytest.mark.parametrize("report", [{}, {"played_ms": 3}, {"turn": 3, "played_ms": 3}, {"stop": 1}])
def test_a_report_that_is_none_is_refused_alone(report: object) -> None:
    with live() as world:
        caller = asked(world)
        assert "REPORT accepts" in caller.say(silence(0.1), report=report).error()
        caller.until("answered")


def said(*chunks: tuple[int, str, float, bool]) -> Said:
    known = Said()
    for piece, text, seconds, whole in chunks:
        known.add(piece, text, seconds, whole=whole)
    return known


@pytest.mark.parametrize(
    ("played_s", "heard"),
    [
        (0.0, ""),
        (0.2, ""),
        (0.5, "One"),
        (0.99, "One two"),
        (1.0, "One two six."),
        (1.5, "One two six. Four"),
        (9.0, "One two six. Four five."),
    ],
)
def test_what_was_said_is_whole_words_up_to_what_was_played(played_s: float, heard: str) -> None:
    known = said((0, "One two six.", 0.4, False), (0, "", 0.6, True), (1, "Four five.", 1.0, True))
    assert known.up_to(played_s) == heard
    assert known.text == "One two six. Four five."


def test_of_a_piece_that_is_not_whole_yet_the_rest_is_taken_to_be_as_quick() -> None:
    known = said((0, "a" * 19 + ".", 2.0, True), (1, "Four five.", 0.5, False))
    assert known.up_to(2.3) == "a" * 19 + "."
    assert known.up_to(2.5) == "a" * 19 + ". Four"
    assert said((0, "Four five.", 0.0, False)).up_to(0.0) == ""


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        ("Uh-huh.", True),
        ("Okay.", True),
        ("", True),
        ("Yes.", False),
        ("No.", False),
        ("okay stop", False),
        ("mm mm mm mm", False),
    ],
)
def test_backchannels(words: str, is_one: bool) -> None:
    assert is_backchannel(words) is is_one
