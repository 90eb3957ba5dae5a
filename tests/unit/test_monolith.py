"""The monolith's rules with fake time, and its loop on a device that ends at once."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from loadtest.baselines.monolith import rules
from loadtest.baselines.monolith.loop import MonolithLoop
from loadtest.baselines.monolith.room import Limits
from loadtest.baselines.monolith.settings import MonolithSettings
from loadtest.baselines.monolith.turns import Chunk, Rule, Turn, Work, members
from loadtest.device import Pass, Profile, SpanLog
from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request
from python_backends.pieces import LAST_CHUNK, LAST_PIECE
from tests import fakes

PROFILE = Profile.named("profile")
DIFFUSION = Profile.named("profile-diffusion")
OWN = Limits(max_running=32, encoder_batch=1, admissions_per_round=1)
END = LAST_CHUNK | LAST_PIECE


def rule(limits: Limits = OWN, think: tuple[int, ...] = (40,)) -> Rule:
    return rules.make("steps", PROFILE, think, limits)


def locked(limits: Limits = OWN) -> Rule:
    return rules.make("locked", DIFFUSION, DIFFUSION.stages["think"].steps_per_piece, limits)


def join(one: Rule, count: int, **about: Any) -> list[Turn]:
    turns = [Turn(number, **about) for number in range(count)]
    for turn in turns:
        one.join(turn)
    return turns


def play(one: Rule, rounds: int = 10_000) -> tuple[list[tuple[Work, ...]], list[Chunk]]:
    """Rounds until nobody is left; integrity holds after each."""
    played, chunks = [], []
    while len(played) < rounds and (works := one.plan()):
        played.append(works)
        chunks += one.commit(works)
        one.check_integrity()
    return played, chunks


def sizes(works: tuple[Work, ...]) -> list[tuple[str, int]]:
    return [(work.stage, len(work.rows)) for work in works]


def test_one_person_takes_115_rounds_and_hears_a_chunk_every_four_steps() -> None:
    one = rule()
    (turn,) = join(one, 1)
    played, chunks = play(one)
    assert len(played) == 40 + 75
    assert sizes(played[0]) == [("listen", 1), ("think", 1)]
    assert all(sizes(works) == [("speak", 1)] for works in played[40:])
    assert [chunk.audio_ms for chunk in chunks] == [320.0] * 18 + [240.0]
    assert [chunk.number for chunk in chunks] == list(range(19))
    assert [chunk.flags for chunk in chunks] == [LAST_PIECE] * 18 + [END]
    assert (turn.thought, turn.spoken, one.turns()) == (40, 75, [])


def test_a_round_is_one_admission_one_think_step_and_one_speak_step_for_everyone() -> None:
    one = rule()
    join(one, 64)
    played, chunks = play(one)
    listened = [[n for stage, n in sizes(works) if stage == "listen"] for works in played]
    assert all(group in ([], [1]) for group in listened)
    assert sizes(played[31]) == [("listen", 1), ("think", 32)]
    assert [work.stage for work in played[60]] == ["think", "speak"]
    assert max(members(works) for works in played) == 32
    assert sum(chunk.ends_turn for chunk in chunks) == 64


@pytest.mark.parametrize(
    ("encoder_batch", "admissions", "passes"),
    [(8, 1, [8]), (1, 8, [1] * 8), (8, 8, [8]), (3, 2, [3]), (1, 1, [1]), (2, 3, [2, 1])],
)
def test_the_knobs_admit_as_many_as_the_larger_one(
    encoder_batch: int, admissions: int, passes: list[int]
) -> None:
    one = rule(Limits(64, encoder_batch, admissions))
    join(one, 64)
    assert [n for stage, n in sizes(one.plan()) if stage == "listen"] == passes


def test_an_encoder_pass_holds_one_shape_and_the_head_of_the_queue_chooses_it() -> None:
    one = rule(Limits(64, 8, 1))
    for bucket in (1, 2, 1, 2, 1):
        one.join(Turn(None, bucket=bucket))
    played, _ = play(one)
    listened = [work.rows for works in played for work in works if work.stage == "listen"]
    assert [[row.turn.bucket for row in group] for group in listened] == [[1, 1, 1], [2, 2]]


def test_pieces_are_spoken_while_the_next_ones_are_thought() -> None:
    one = rule(think=(10, 10, 10, 10))
    join(one, 1)
    played, chunks = play(one)
    assert sizes(played[9]) == [("think", 1)]
    assert sizes(played[10]) == [("think", 1), ("speak", 1)]
    ends = [chunk for chunk in chunks if chunk.flags & LAST_CHUNK]
    assert [chunk.piece for chunk in ends] == [0, 1, 2, 3]
    assert [chunk.flags for chunk in ends] == [LAST_CHUNK] * 3 + [END]
    assert sum(chunk.audio_ms for chunk in chunks) == 75 * 80


def test_a_whole_answer_is_one_chunk_at_the_end() -> None:
    for one in (rule(), locked()):
        join(one, 1, whole=True)
        played, chunks = play(one)
        assert [(chunk.number, chunk.flags) for chunk in chunks] == [(0, END)]
        assert chunks[0].audio_ms == 6000.0
        assert len(played) > 40


def test_a_locked_think_batch_lets_nobody_join_before_its_end() -> None:
    one = locked()
    join(one, 2)
    played, _ = play(one)
    thinking = [next((n for s, n in sizes(works) if s == "think"), 0) for works in played]
    assert thinking[:80] == [1] * 80
    assert sizes(played[1])[0] == ("listen", 1)


def test_a_locked_acoustic_batch_makes_its_eight_steps_and_is_vocoded_in_the_last_round() -> None:
    one = locked(Limits(32, 8, 1))
    join(one, 8)
    played, chunks = play(one)
    stages = [[work.stage for work in works] for works in played]
    assert "acoustic" not in {stage for round_ in stages[:4] for stage in round_}
    assert stages[4:11] == [["think", "acoustic"]] * 7
    assert stages[11] == ["think", "acoustic", "vocoder"]
    factors = {w.factor for works in played[:12] for w in works if w.stage == "acoustic"}
    assert factors == {1.0}
    assert [chunk.piece for chunk in chunks] == [p for p in range(4) for _ in range(8)]


def test_short_and_long_pieces_never_share_a_batch_and_never_overtake_in_a_turn() -> None:
    one = locked(Limits(32, 3, 1))
    join(one, 20)
    played, chunks = play(one)
    for works in played:
        for work in works:
            if work.stage == "acoustic":
                assert len({row.piece > 0 for row in work.rows}) == 1
                assert len(work.rows) <= 8
    for person in range(20):
        assert [c.piece for c in chunks if c.turn.payload == person] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["steps", "locked"])
def test_whoever_leaves_at_random_is_gone_and_the_others_are_served(kind: str) -> None:
    chance = random.Random(7)
    for _ in range(20):
        limits = Limits(chance.randint(1, 9), chance.randint(1, 8), chance.randint(1, 4))
        one = rule(limits) if kind == "steps" else locked(limits)
        turns, ended = [], set()
        for _ in range(1500):
            if chance.random() < 0.05 and len(turns) < 30:
                turns += join(one, 1, bucket=chance.randint(0, 1))
            if chance.random() < 0.01 and turns:
                one.leave(chance.choice(turns))
            chunks = one.commit(one.plan())
            one.check_integrity()
            assert not any(chunk.turn.gone for chunk in chunks)
            ended |= {id(chunk.turn) for chunk in chunks if chunk.ends_turn}
        _, chunks = play(one)
        ended |= {id(chunk.turn) for chunk in chunks if chunk.ends_turn}
        assert all((id(turn) in ended) or turn.gone for turn in turns)
        assert one.plan() == ()
        assert one.turns() == []


class Instant:
    """A device that takes no time, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.enough = threading.Event()
        self.enough.set()

    def order(self, work: Work) -> Pass:
        assert self.enough.wait(fakes.WAIT_S)
        self.works.append(work)
        now = time.monotonic_ns()
        return Pass(now, now, now)


def settings(**changes: Any) -> MonolithSettings:
    given: dict[str, Any] = {
        "rule": "steps",
        "max_running": 32,
        "encoder_batch": 1,
        "admissions_per_round": 1,
        "gap_hidden": False,
        "max_waiting": 512,
    }
    return MonolithSettings(**given | changes)


@contextmanager
def serving(**changes: Any) -> Iterator[tuple[Inbox, Instant]]:
    inbox, device, chosen = Inbox(), Instant(), settings(**changes)
    loop = MonolithLoop(
        rules.make(chosen.rule, PROFILE, (40,), chosen.limits),
        device,
        chosen,
        lambda members: 0.0,
        SpanLog("", "monolith"),
    )
    thread = threading.Thread(target=loop.run, args=[inbox])
    thread.start()
    try:
        yield inbox, device
    finally:
        device.enough.set()
        inbox.put(Closed())
        thread.join()


def arrive(
    inbox: Inbox, turn: str = "t", *, sound: bool = True, **options: Any
) -> fakes.InferenceResponseSender:
    inputs = {"AUDIO": np.zeros((1, 16), np.float32)} if sound else {}
    native = fakes.arriving(inputs, request_id=turn, parameters=options)
    request = Request(native, "monolith", lambda _: None)
    request.parse_options()
    inbox.put(Arrived(request))
    return native.sender


@pytest.mark.parametrize("gap_hidden", [False, True])
def test_a_turn_is_answered_in_19_chunks_that_tell_what_happened(gap_hidden: bool) -> None:
    with serving(gap_hidden=gap_hidden) as (inbox, device):
        values = arrive(inbox).values()
    assert [v["PIECE"][0].tolist() for v in values] == [
        *([0, number, LAST_PIECE] for number in range(18)),
        [0, 18, END],
    ]
    assert sum(v["SPEECH"].item() for v in values) == 6000.0
    assert [v["TEXT"].item() != b"" for v in values] == [True] + [False] * 18
    events = [json.loads(entry) for entry in values[-1]["EVENTS"][0]]
    assert [event["what"] for event in events] == ["queue", "listen", "think", "speak"]
    assert {event["stage"] for event in events} == {"monolith"}
    assert {event["turn"] for event in events} == {"t"}
    times = [t for event in events for t in (event["start_ns"], event["end_ns"])]
    assert times == sorted(times)
    assert len(device.works) == 1 + 40 + 75


def test_whoever_is_cancelled_or_deserts_leaves_between_rounds() -> None:
    with serving() as (inbox, device):
        device.enough.clear()
        cancelled, deserted, kept = (arrive(inbox, turn) for turn in "abc")
        deserted.cancelled = True
        inbox.put(CancelTurn("a"))
        device.enough.set()
        assert "code=CANCELLED" in cancelled.error()
        assert "code=CANCELLED" in deserted.error()
        assert len(kept.values()) == 19


def test_beyond_the_waiting_room_turns_are_refused_with_a_time_to_come_back() -> None:
    with serving(max_running=1, max_waiting=2) as (inbox, device):
        device.enough.clear()
        senders = [arrive(inbox, str(number)) for number in range(9)]
        inbox.put(CancelTurn("nobody"))
        device.enough.set()
        errors = [sender.error() for sender in senders]
    refused = [error for error in errors if error]
    assert refused
    assert all("code=OVERLOADED" in e and "retry_after_ms=" in e for e in refused)
    assert errors[0] == ""


def test_a_request_without_sound_is_the_callers_fault() -> None:
    with serving() as (inbox, _):
        assert "code=INVALID_INPUT" in arrive(inbox, sound=False).error()


@pytest.mark.parametrize("wrong", [{"rule": "x"}, {"max_waiting": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"rule|max_waiting"):
        settings(**wrong)
