"""Incremental text and clause pieces."""

import random

import pytest

from python_backends.ar_loop.text import Detokenizer, PieceSplitter

ANSWER = "Got it, two cheeseburgers and a large Coke. That is $3.50, ready at 3:05. Anything else?"


def split(parts: list[str]) -> list[str]:
    splitter = PieceSplitter()
    pieces = [piece for part in parts for piece in splitter.add(part)]
    return [*pieces, splitter.rest()]


def test_the_first_piece_is_the_first_clause_and_later_ones_are_longer() -> None:
    assert split([ANSWER]) == [
        "Got it,",
        "two cheeseburgers and a large Coke.",
        "That is $3.50, ready at 3:05.",
        "Anything else?",
    ]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_do_not_depend_on_how_the_text_arrives(seed: int) -> None:
    draw = random.Random(seed)
    cuts = sorted(draw.sample(range(1, len(ANSWER)), 12))
    parts = [ANSWER[a:b] for a, b in zip([0, *cuts], [*cuts, len(ANSWER)], strict=True)]
    assert split(parts) == split([ANSWER])


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ('I said "two please." Then I left.', ['I said "two please."', "Then I left."]),
        ("Fries (the large ones.) Anything else?", ["Fries (the large ones.)", "Anything else?"]),
        ("Well... That was it... Bye.", ["Well...", "That was it...", "Bye."]),
        ("1. Burger. 2. Fries. Done.", ["1. Burger.", "2. Fries.", "Done."]),
        ("... ... Okay then! Bye.", ["... ... Okay then!", "Bye."]),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_marks_end_a_piece_with_what_belongs_to_them(
    line: str, pieces: list[str], size: int
) -> None:
    assert split([line[at : at + size] for at in range(0, len(line), size)]) == pieces


def test_nothing_is_lost_or_doubled() -> None:
    assert " ".join(split(list(ANSWER))) == ANSWER


def test_text_without_marks_is_cut_at_a_blank() -> None:
    pieces = split(["word " * 100])
    assert all(len(piece) <= 160 for piece in pieces)
    assert " ".join(pieces).split() == ["word"] * 100


@pytest.mark.parametrize("size", [1, 7, 400])
def test_a_mark_far_behind_does_not_make_a_piece_too_long(size: int) -> None:
    line = "word " * 70 + "end. And more."
    pieces = split([line[at : at + size] for at in range(0, len(line), size)])
    assert all(len(piece) <= 160 for piece in pieces)
    assert pieces == split([line])


def test_a_character_of_several_tokens_is_never_split() -> None:
    line = "Great 👍 你好!"
    raw = line.encode()

    def decode(ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")

    text = Detokenizer(decode)
    parts = [text.add(byte) for byte in raw]
    assert "".join(parts) + text.rest() == line
    assert not any("\ufffd" in part for part in parts)
