"""The rules of sequences: START, END, idle time-out, restart, reuse, and whose an id is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backends.scheduling.sequences import Refused, Sequences


def sequences(most: int = 4, idle_s: float = 10.0) -> Sequences[str]:
    return Sequences(most=most, idle_s=idle_s)


def arrive(
    known: Sequences[str],
    key: int,
    item: str = "",
    *,
    owner: str = "a",
    now: float = 0.0,
    start: bool = False,
    end: bool = False,
) -> str:
    """Where it belongs, and `!` if it begins there."""
    if start:
        known.begin(key, owner, now, item)
        found = f"{item}!"
    else:
        found = item = known.go_on(key, owner, now)
    if end:
        known.end(key, item)
    known.check_integrity()
    return found


def test_a_sequence_begins_with_start_and_ends_with_end() -> None:
    known = sequences()
    assert arrive(known, 7, "one", start=True) == "one!"
    assert arrive(known, 7) == "one"
    assert arrive(known, 7, end=True) == "one"
    with pytest.raises(Refused, match="no_start"):
        arrive(known, 7)


def test_without_a_start_there_is_no_sequence() -> None:
    for end in (False, True):
        with pytest.raises(Refused, match="no_start"):
            arrive(sequences(), 7, end=end)


def test_one_request_may_be_a_whole_sequence() -> None:
    known = sequences()
    assert arrive(known, 7, "one", start=True, end=True) == "one!"
    assert len(known) == 0


def test_an_id_may_be_used_again_after_its_end() -> None:
    known = sequences()
    arrive(known, 7, "one", start=True, end=True)
    assert arrive(known, 7, "two", start=True, owner="b") == "two!"


def test_a_second_start_begins_anew() -> None:
    known = sequences()
    arrive(known, 7, "one", start=True)
    assert known.begin(7, "a", 1.0, "two") == "one"
    assert arrive(known, 7) == "two"


@pytest.mark.parametrize(("start", "end"), [(True, False), (False, False), (False, True)])
def test_somebody_elses_id_is_refused_and_its_owner_goes_on(start: bool, end: bool) -> None:
    known = sequences()
    arrive(known, 7, "one", start=True)
    with pytest.raises(Refused, match="taken"):
        arrive(known, 7, "other", owner="b", start=start, end=end)
    assert arrive(known, 7) == "one"


def test_one_more_than_there_is_room_for_is_refused_until_another_ends() -> None:
    known = sequences(most=1)
    arrive(known, 1, "one", start=True)
    with pytest.raises(Refused, match="full"):
        arrive(known, 2, "two", start=True)
    assert arrive(known, 1, "again", start=True) == "again!"
    arrive(known, 1, end=True)
    assert arrive(known, 2, "two", start=True) == "two!"


def test_who_says_nothing_for_too_long_is_forgotten() -> None:
    known = sequences()
    arrive(known, 1, "quiet", start=True)
    arrive(known, 2, "busy", start=True)
    assert known.next_idle_s() == 10.0
    arrive(known, 2, now=6.0)
    assert known.idle(9.9) == []
    assert known.idle(10.0) == ["quiet"]
    with pytest.raises(Refused, match="no_start"):
        arrive(known, 1, now=10.0)
    assert known.next_idle_s() == 16.0


def test_what_is_over_for_other_reasons_is_forgotten() -> None:
    known = sequences()
    arrive(known, 1, "one", start=True)
    known.end(1, "another")
    assert arrive(known, 1) == "one"
    known.end(1, "one")
    known.end(1, "one")
    assert known.next_idle_s() == float("inf")


Step = st.tuples(
    st.integers(0, 3), st.sampled_from("ab"), st.booleans(), st.booleans(), st.floats(0, 6)
)


@given(st.lists(Step, max_size=60))
def test_nobody_ever_reaches_a_sequence_that_is_not_theirs(steps: list[Any]) -> None:
    known = sequences(most=3)
    now = 0.0
    for number, (key, owner, start, end, pause_s) in enumerate(steps):
        now += pause_s
        known.idle(now)
        try:
            item = f"{owner}{number}"
            found = arrive(known, key, item, owner=owner, now=now, start=start, end=end)
        except Refused:
            continue
        assert found[0] == owner
        assert (found == f"{item}!") is start
