"""Responses leave in order, whatever order they were made in."""

from collections.abc import Callable
from random import Random

import pytest

from python_backends.scheduling.order import InOrder

Position = tuple[int, int]


def answer_of(random: Random) -> list[tuple[Position, bool, bool]]:
    """(position, ends its piece, ends the turn) of every response of a random answer."""
    chunks = [random.randint(1, 4) for _ in range(random.randint(1, 5))]
    return [
        ((piece, chunk), chunk == count - 1, (piece, chunk) == (len(chunks) - 1, count - 1))
        for piece, count in enumerate(chunks)
        for chunk in range(count)
    ]


def into(sent: list[Position], position: Position) -> Callable[[], None]:
    return lambda: sent.append(position)


@pytest.mark.parametrize("seed", range(200))
def test_any_permutation_of_several_turns_leaves_in_order(seed: int) -> None:
    random = Random(seed)
    order = InOrder()
    answers = {f"turn-{number}": answer_of(random) for number in range(3)}
    sent: dict[str, list[Position]] = {turn: [] for turn in answers}
    made = [(turn, response) for turn, answer in answers.items() for response in answer]
    random.shuffle(made)
    for turn, (position, ends_piece, ends_turn) in made:
        send = into(sent[turn], position)
        order.submit(turn, position, ends_piece=ends_piece, ends_turn=ends_turn, send=send)
        order.check_integrity()
        expected = [response[0] for response in answers[turn]]
        assert sent[turn] == expected[: len(sent[turn])]
    assert sent == {turn: [one[0] for one in answer] for turn, answer in answers.items()}
    assert len(order) == 0


def submit(
    order: InOrder, sent: list[Position], piece: int, chunk: int = 0, *, last: bool = False
) -> None:
    position = (piece, chunk)
    send = into(sent, position)
    order.submit("turn", position, ends_piece=True, ends_turn=last, send=send)


def test_what_is_next_leaves_at_once() -> None:
    order, sent = InOrder(), list[Position]()
    submit(order, sent, 0)
    assert sent == [(0, 0)]


@pytest.mark.parametrize("piece", [0, 2])
def test_a_response_made_twice_is_refused(piece: int) -> None:
    """Both after it has left and while it is held back."""
    order, sent = InOrder(), list[Position]()
    submit(order, sent, 0)
    submit(order, sent, 2)
    with pytest.raises(ValueError, match="made twice"):
        submit(order, sent, piece)


def test_a_turn_holds_back_a_bounded_number_of_responses() -> None:
    order, sent = InOrder(limit=2), list[Position]()
    submit(order, sent, 1)
    submit(order, sent, 2)
    with pytest.raises(ValueError, match="more than 2"):
        submit(order, sent, 3)


def test_the_one_that_everybody_waits_for_is_taken_even_when_no_room_is_left() -> None:
    order, sent = InOrder(limit=2), list[Position]()
    for piece in (2, 1, 0):
        submit(order, sent, piece, last=piece == 2)
    assert sent == [(0, 0), (1, 0), (2, 0)]
    assert len(order) == 0


def test_an_abandoned_turn_gives_back_what_it_held_in_order() -> None:
    order, sent = InOrder(), list[Position]()
    for piece in (3, 1, 2):
        submit(order, sent, piece)
    assert not sent
    for send in order.abandon("turn"):
        send()
    assert sent == [(1, 0), (2, 0), (3, 0)]
    assert len(order) == 0
    assert order.abandon("turn") == []


def test_one_turn_does_not_hold_back_another() -> None:
    order, sent = InOrder(), list[Position]()
    submit(order, sent, 1)
    order.submit("other", (0, 0), ends_piece=True, ends_turn=True, send=into(sent, (9, 9)))
    assert sent == [(9, 9)]
    assert len(order) == 1


def test_a_response_that_fails_to_leave_does_not_stop_the_next_ones() -> None:
    order, sent = InOrder(), list[Position]()

    def broken() -> None:
        raise ConnectionError

    submit(order, sent, 1)
    with pytest.raises(ConnectionError):
        order.submit("turn", (0, 0), ends_piece=True, ends_turn=False, send=broken)
    submit(order, sent, 2, last=True)
    assert sent == [(1, 0), (2, 0)]
    assert len(order) == 0
