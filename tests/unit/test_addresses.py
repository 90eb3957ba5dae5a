"""What answers of DNS make of the replicas that are known, in fake time."""

from python_backends.scheduling.addresses import LEAVING_S, Named
from python_backends.scheduling.replicas import Listed

ONE, TWO = frozenset({"10.0.0.1"}), frozenset({"10.0.0.1", "10.0.0.2"})
FIRST, SECOND = "10.0.0.1:8001", "10.0.0.2:8001"


def listed(*names: str, draining: tuple[str, ...] = ()) -> list[Listed]:
    return [Listed(name, name, name in draining) for name in names]


def test_every_address_is_a_replica_named_by_it() -> None:
    found = Named(8001).heard({"A": TWO, "AAAA": frozenset({"fd00::7"})}, 0.0)
    assert found == listed(FIRST, SECOND, "[fd00::7]:8001")


def test_one_that_has_left_drains_and_is_forgotten_later() -> None:
    named = Named(8001)
    named.heard({"A": TWO, "AAAA": frozenset()}, 0.0)
    gone = listed(FIRST, SECOND, draining=(SECOND,))
    assert named.heard({"A": ONE, "AAAA": frozenset()}, 5.0) == gone
    assert named.heard({"A": ONE, "AAAA": frozenset()}, 5.0 + LEAVING_S - 0.1) == gone
    assert named.heard({"A": ONE, "AAAA": frozenset()}, 5.0 + LEAVING_S) == listed(FIRST)


def test_one_that_comes_back_in_time_takes_turns_again() -> None:
    named = Named(8001)
    named.heard({"A": TWO}, 0.0)
    named.heard({"A": ONE}, 1.0)
    assert named.heard({"A": TWO}, 2.0) == listed(FIRST, SECOND)
    assert named.heard({"A": ONE}, 3.0) == listed(FIRST, SECOND, draining=(SECOND,))


def test_a_question_without_an_answer_changes_nothing() -> None:
    named = Named(8001)
    named.heard({"A": TWO, "AAAA": frozenset()}, 0.0)
    assert named.heard({"A": None, "AAAA": None}, 1.0) == listed(FIRST, SECOND)
    assert named.heard({"A": None, "AAAA": frozenset({"fd00::7"})}, 2.0) == listed(
        FIRST, SECOND, "[fd00::7]:8001"
    )


def test_a_name_without_addresses_has_no_replicas() -> None:
    named = Named(8001)
    named.heard({"A": ONE, "AAAA": frozenset()}, 0.0)
    found = named.heard({"A": frozenset(), "AAAA": frozenset()}, 1.0)
    assert found == listed(FIRST, draining=(FIRST,))
