"""How far ahead of its caller's ears an answer may be sent."""

import math
from random import Random

import pytest

from python_backends.scheduling.pacing import Pace


def test_the_first_chunk_goes_at_once_and_playing_begins_with_it() -> None:
    pace = Pace(1.0)
    assert pace.may_send(5.0)
    pace.sent(0.4, 5.0)
    assert pace.played_s(5.3) == pytest.approx(0.3)
    assert pace.left_s(5.3) == pytest.approx(0.1)


def test_no_chunk_begins_beyond_the_lead() -> None:
    pace = Pace(1.0)
    for _ in range(3):
        assert pace.may_send(0.0)
        pace.sent(0.4, 0.0)
    assert not pace.may_send(0.0)
    assert pace.wait_s(0.0) == pytest.approx(0.2)
    assert pace.may_send(0.21)


def test_who_has_run_dry_plays_the_next_chunk_when_it_comes() -> None:
    pace = Pace(1.0)
    pace.sent(0.4, 0.0)
    pace.sent(0.4, 2.0)
    assert pace.played_s(2.1) == pytest.approx(0.5)


def test_a_report_corrects_what_was_taken_to_be_and_an_old_one_does_not() -> None:
    pace = Pace(1.0)
    pace.sent(0.9, 0.0)
    pace.reported(0.2, 0.5)
    assert pace.played_s(0.6) == pytest.approx(0.3)
    pace.reported(0.4, 0.7)
    pace.reported(0.1, 0.7)
    assert pace.played_s(0.7) == pytest.approx(0.4)
    pace.reported(50.0, 0.8)
    assert pace.played_s(0.8) == pytest.approx(0.9)


def test_while_it_is_paused_nothing_is_played_or_sent_and_then_it_goes_on() -> None:
    pace = Pace(1.0)
    pace.sent(0.9, 0.0)
    pace.pause(0.5)
    assert not pace.may_send(9.0)
    assert pace.wait_s(9.0) == math.inf
    assert pace.played_s(9.0) == pytest.approx(0.5)
    pace.resume(9.0)
    assert pace.may_send(9.0)
    assert pace.played_s(9.2) == pytest.approx(0.7)


def test_a_lead_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        Pace(0)


@pytest.mark.parametrize("seed", range(20))
def test_at_random_the_lead_is_kept_and_playing_never_goes_back_but_by_report(seed: int) -> None:
    random, pace, now = Random(seed), Pace(0.8), 0.0
    for _ in range(500):
        now += random.uniform(0, 0.3)
        before = pace.played_s(now)
        what = random.choice(("send", "send", "report", "pause", "resume"))
        if what == "send" and pace.may_send(now):
            assert pace.left_s(now) < 0.8
            pace.sent(random.uniform(0, 0.3), now)
            assert pace.left_s(now) <= 0.8 + 0.3
        elif what == "report":
            pace.reported(random.uniform(0, pace.sent_s + 0.1), now)
            before = 0.0
        elif what == "pause":
            pace.pause(now)
        elif what == "resume":
            pace.resume(now)
        assert before - 1e-9 <= pace.played_s(now) <= pace.sent_s
        pace.check_integrity()
