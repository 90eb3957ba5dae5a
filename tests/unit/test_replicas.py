"""Which server a turn goes to, in fake time."""

import random

from python_backends.scheduling.replicas import KEEP_S, SLACK, Listed, Replica, Replicas


def pool(*names: str) -> Replicas:
    replicas = Replicas()
    replicas.update(Listed(name, f"host:{name}") for name in names)
    return replicas


def name(replica: Replica | None) -> str:
    return "" if replica is None else replica.name


def test_turns_are_spread_over_equals_and_then_go_to_the_least_loaded() -> None:
    replicas = pool("a", "b")
    assert [name(replicas.enter(f"t{n}", "", 0.0)) for n in range(4)] == ["a", "b", "a", "b"]
    replicas.leave("t1", 1.0, over=True)
    assert name(replicas.enter("t4", "", 1.0)) == "b"


def test_equals_take_turns_even_when_nothing_is_open() -> None:
    replicas = pool("a", "b")
    found = []
    for number in range(4):
        found.append(name(replicas.enter(f"t{number}", "", 0.0)))
        replicas.leave(f"t{number}", 0.0, over=True)
    assert found == ["a", "b", "a", "b"]


def test_a_replica_that_is_added_does_not_have_to_catch_up() -> None:
    replicas = pool("a")
    for number in range(100):
        replicas.enter(f"t{number}", "", 0.0)
        replicas.leave(f"t{number}", 0.0, over=True)
    replicas.update([Listed("a", "host:a"), Listed("b", "host:b")])
    found = []
    for number in range(100, 104):
        found.append(name(replicas.enter(f"t{number}", "", 0.0)))
        replicas.leave(f"t{number}", 0.0, over=True)
    assert found == ["b", "a", "b", "a"]


def test_all_pieces_of_a_turn_go_where_it_began_even_while_it_drains() -> None:
    replicas = pool("a", "b")
    assert name(replicas.enter("t", "", 0.0)) == "a"
    replicas.leave("t", 0.1, over=False)
    replicas.update([Listed("a", "host:a", draining=True), Listed("b", "host:b")])
    assert name(replicas.enter("t", "", 0.2)) == "a"
    assert name(replicas.enter("other", "", 0.2)) == "b"


def test_a_session_goes_back_where_it_was_unless_that_is_much_busier() -> None:
    replicas = pool("a", "b")
    assert name(replicas.enter("t0", "anna", 0.0)) == "a"
    replicas.leave("t0", 0.0, over=True)
    found = [name(replicas.enter(f"t{number}", "anna", 0.0)) for number in range(SLACK + 2)]
    assert found == ["a"] * (SLACK + 1) + ["b"]


def test_a_turn_whose_server_is_lost_is_refused_and_a_new_one_goes_elsewhere() -> None:
    replicas = pool("a", "b")
    replicas.enter("t", "", 0.0)
    replicas.known()[0].lost = True
    assert replicas.enter("t", "", 0.1) is None
    assert name(replicas.enter("new", "", 0.1)) == "b"


def test_without_any_usable_server_there_is_no_answer() -> None:
    assert pool().enter("t", "", 0.0) is None
    replicas = pool("a")
    replicas.update([Listed("a", "host:a", draining=True)])
    assert replicas.enter("t", "", 0.0) is None


def test_a_replica_that_left_is_known_until_its_turns_are_over() -> None:
    replicas = pool("a")
    replicas.enter("t", "", 0.0)
    replicas.update([Listed("b", "host:b")])
    assert [one.name for one in replicas.known()] == ["b", "a"]
    replicas.leave("t", 1.0, over=True)
    assert [one.name for one in replicas.known()] == ["b"]


def test_the_same_name_at_another_address_is_another_replica() -> None:
    replicas = pool("a")
    replicas.update([Listed("a", "elsewhere:a")])
    assert [one.address for one in replicas.known()] == ["elsewhere:a"]


def test_a_turn_that_nobody_ended_is_forgotten_but_an_open_one_is_not() -> None:
    replicas = pool("a")
    replicas.enter("gone", "", 0.0)
    replicas.leave("gone", 0.0, over=False)
    replicas.enter("open", "", 0.0)
    replicas.enter("new", "", KEEP_S)
    assert replicas.known()[0].turns == 2
    replicas.check_integrity()


def test_a_cancelled_turn_is_over_when_its_requests_have_left() -> None:
    replicas = pool("a")
    replicas.enter("t", "", 0.0)
    replicas.end("t")
    assert replicas.known()[0].turns == 1
    replicas.leave("t", 0.0, over=False)
    assert replicas.known()[0].turns == 0
    replicas.end("t")


def test_whatever_happens_every_turn_is_counted_once() -> None:
    draw = random.Random(4)
    replicas, open_turns, now = pool("a", "b", "c"), [], 0.0
    for step in range(3000):
        now += draw.random()
        match draw.randrange(6):
            case 0 | 1:
                turn = f"t{draw.randrange(step + 1)}"
                if replicas.enter(turn, draw.choice(["", "anna", "ben"]), now):
                    open_turns.append(turn)
            case 2 | 3 if open_turns:
                turn = open_turns.pop(draw.randrange(len(open_turns)))
                replicas.leave(turn, now, over=draw.random() < 0.5)
            case 4:
                names = draw.sample("abcd", draw.randrange(5))
                replicas.update(Listed(n, f"host:{n}", draw.random() < 0.3) for n in names)
            case _:
                for one in replicas.known():
                    one.lost = draw.random() < 0.2
        replicas.check_integrity()
    for turn in open_turns:
        replicas.leave(turn, now, over=True)
    replicas.forget(now + 2 * KEEP_S)
    replicas.check_integrity()
    assert not any(one.turns for one in replicas.known())
