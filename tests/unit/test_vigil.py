"""When a server is lost, and when a draining one is drained. In fake time."""

import pytest

from deploy.cluster.drain import Drain
from deploy.vigil import Vigil


def silent_from(vigil: Vigil, now: float, step_s: float) -> float:
    """When a server that does not answer any more is given up; each question takes a second."""
    while vigil.verdict(now, alive=True) is None:
        if vigil.is_due(now):
            asked = now
            now += 1.0
            vigil.heard(asked, None)
        else:
            now += step_s
    return now


def test_a_server_whose_process_has_ended_is_lost_at_once() -> None:
    vigil = Vigil(10.0)
    assert vigil.verdict(10.0, alive=True) is None
    assert vigil.verdict(10.1, alive=False) == "its process has ended"


def test_a_server_is_asked_twice_a_second() -> None:
    vigil = Vigil(0.0)
    assert not vigil.is_due(0.4)
    assert vigil.is_due(0.5)
    vigil.heard(0.5, 0.51)
    assert not vigil.is_due(0.9)
    assert vigil.is_due(1.0)


@pytest.mark.parametrize("step_s", [0.01, 0.1, 0.25])
def test_a_stopped_server_is_noticed_within_three_seconds(step_s: float) -> None:
    vigil = Vigil(0.0)
    vigil.heard(7.0, 7.0)
    assert 2.5 <= silent_from(vigil, 7.0, step_s) - 7.0 <= 3.0


def test_one_answer_that_is_missing_is_forgiven() -> None:
    vigil = Vigil(0.0)
    vigil.heard(0.5, None)
    vigil.heard(1.5, 1.6)
    assert vigil.verdict(4.0, alive=True) is None


def test_a_watcher_that_was_itself_stopped_asks_before_it_judges() -> None:
    vigil = Vigil(0.0)
    vigil.heard(0.5, 0.5)
    assert vigil.verdict(100.0, alive=True) is None
    vigil.heard(100.0, None)
    assert vigil.verdict(101.0, alive=True) is None
    vigil.heard(101.0, 101.1)
    assert vigil.verdict(101.2, alive=True) is None


def test_a_draining_server_must_be_seen_empty_twice_and_not_too_soon() -> None:
    drain = Drain(0.0)
    assert not drain.is_over(0.3, 0)
    assert not drain.is_over(0.9, 0)
    assert not drain.is_over(1.2, 0)
    assert drain.is_over(1.5, 0)


def test_a_request_that_came_meanwhile_starts_the_looks_again() -> None:
    drain = Drain(0.0)
    assert not drain.is_over(2.0, 0)
    assert not drain.is_over(2.3, 4)
    assert drain.open_requests == 4
    assert not drain.is_over(2.6, 0)
    assert drain.is_over(2.9, 0)
