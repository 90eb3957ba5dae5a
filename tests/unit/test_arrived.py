"""Pieces leave in order among those that have arrived, and none waits for ever."""

from collections.abc import Callable
from random import Random

import pytest

from python_backends.scheduling.arrived import ArrivedInOrder


def into(sent: list[int], piece: int) -> Callable[[], None]:
    return lambda: sent.append(piece)


@pytest.mark.parametrize("seed", range(100))
def test_pieces_that_are_here_leave_in_order_whatever_order_they_are_made_in(seed: int) -> None:
    random = Random(seed)
    order, sent, waiting = ArrivedInOrder(), list[int](), list[int]()
    arriving = list(range(12))
    while arriving or waiting:
        if arriving and (not waiting or random.random() < 0.5):
            waiting.append(arriving.pop(0))
            order.arrive("turn", waiting[-1])
        else:
            piece = waiting.pop(random.randrange(len(waiting)))
            order.ready("turn", piece, into(sent, piece))
        order.check_integrity()
    assert sent == list(range(12))
    assert len(order) == 0


def test_a_piece_does_not_wait_for_one_that_has_not_arrived() -> None:
    order, sent = ArrivedInOrder(), list[int]()
    order.arrive("turn", 3)
    order.ready("turn", 3, into(sent, 3))
    assert sent == [3]
    assert len(order) == 0


def test_an_abandoned_turn_gives_back_what_it_held_and_holds_nothing_more() -> None:
    order, sent = ArrivedInOrder(), list[int]()
    for piece in range(4):
        order.arrive("turn", piece)
    for piece in (3, 1):
        order.ready("turn", piece, into(sent, piece))
    for send in order.abandon("turn"):
        send()
    assert sent == [1, 3]
    order.ready("turn", 2, into(sent, 2))
    assert sent == [1, 3, 2]
    assert len(order) == 0


def test_a_piece_that_is_open_already_is_refused() -> None:
    order = ArrivedInOrder()
    order.arrive("turn", 1)
    order.arrive("other", 1)
    with pytest.raises(ValueError, match="open already"):
        order.arrive("turn", 1)
