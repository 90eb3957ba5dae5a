"""Incremental text and clause pieces."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from python_backends.ar_loop.text import (
    MAX_PIECE_CHARS,
    Detokenizer,
    PieceSplitter,
    StopStrings,
    parts,
)

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
        ("Hi, Dr. Smith. Bye.", ["Hi, Dr. Smith.", "Bye."]),
        ("Take St. Paul Road No. 5. Bye.", ["Take St. Paul Road No. 5.", "Bye."]),
        ("Sorry. No. I cannot.", ["Sorry.", "No.", "I cannot."]),
        ("So do I. J. R. Tolkien, e.g. too.", ["So do I.", "J. R. Tolkien, e.g. too."]),
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


@pytest.mark.parametrize("size", [0, 1, 42, 146, 374, 3000])
def test_parts_are_as_few_whole_sentences_as_fit_and_nothing_is_lost(size: int) -> None:
    """Public case H5."""
    text = (ANSWER + " ") * 40
    text = text[:size].strip()
    found = parts(text)
    assert " ".join(found).split() == text.split()
    assert all(0 < len(part) <= MAX_PIECE_CHARS for part in found)
    assert all(len(one) + len(two) > MAX_PIECE_CHARS // 2 for one, two in pairwise(found))


def test_items_of_a_list_stay_on_lines_of_their_own() -> None:
    assert parts("To buy:\n- milk.\n- tea.") == ["To buy:\n- milk.\n- tea."]


def as_utf8(ids: list[int]) -> str:
    """Decoding with a token for every byte."""
    return bytes(ids).decode(errors="replace")


LINES = ["👍你好삼겹살", "Great 👍 你好!", "Café — naïve 👩‍👩‍👧 end", "plain"]


@pytest.mark.parametrize("line", LINES)
def test_a_character_of_several_tokens_is_never_split(line: str) -> None:
    """Public case G7."""
    text = Detokenizer(as_utf8)
    parts = [text.add(byte) for byte in line.encode()]
    assert "".join(parts) == line
    assert not text.rest()
    assert not any("\ufffd" in part for part in parts)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_character_that_stays_incomplete_is_marked_once_and_at_the_end_alone(cut: int) -> None:
    text = Detokenizer(as_utf8)
    raw = "Great 👍".encode()[:-cut]
    assert "".join(text.add(byte) for byte in raw) == "Great "
    assert text.rest() == "\ufffd"


@pytest.mark.parametrize("seed", range(20))
def test_bytes_in_any_order_give_what_decoding_them_at_once_gives(seed: int) -> None:
    draw = random.Random(seed)
    common = "añ你👍".encode()
    raw = [draw.choice([*common, draw.randrange(256)]) for _ in range(200)]
    text = Detokenizer(as_utf8)
    assert "".join(text.add(byte) for byte in raw) + text.rest() == as_utf8(raw)


def test_a_decoder_that_treats_the_first_token_in_its_own_way_is_given_context() -> None:
    """As SentencePiece does: the blank before the first word of a text is left out."""

    def decode(ids: list[int]) -> str:
        return "".join(f" w{number}" for number in ids)[1:]

    text = Detokenizer(decode)
    assert [text.add(number) for number in (3, 1, 2)] == ["w3", " w1", " w2"]


def test_a_token_costs_the_same_however_long_the_answer_is() -> None:
    longest = 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return as_utf8(ids)

    text = Detokenizer(decode)
    for byte in "Two 👍 burgers. ".encode() * 50:
        text.add(byte)
    assert longest <= 8


def kept(parts: Sequence[str], *stops: str) -> tuple[list[str], str, bool]:
    """What came out with each part, at the end, and whether a stop string was found."""
    ends = StopStrings(stops)
    return [ends.add(part) for part in parts], ends.rest(), ends.found


def test_a_stop_string_over_several_tokens_is_found_and_nothing_of_it_is_given() -> None:
    """Public case G9."""
    assert kept(["ABC", "DEF", "G", "HI", "J", "KLM"], "DEFGHIJ") == (
        ["ABC", "", "", "", "", ""],
        "",
        True,
    )


def test_a_near_miss_is_released() -> None:
    assert kept(["ABC", "DEF", "G", "HI", "K"], "DEFGHIJ") == (
        ["ABC", "", "", "", "DEFGHIK"],
        "",
        False,
    )
    assert kept(["ABC", "DEF", "G", "HI"], "DEFGHIJ") == (["ABC", "", "", ""], "DEFGHI", False)


def test_a_near_miss_may_hold_the_beginning_of_the_real_one() -> None:
    assert kept(["aa", "a", "b", "c"], "aab") == (["", "a", "", ""], "", True)
    assert kept(["abab", "a", "c"], "ababac") == (["", "", ""], "", True)


def test_text_before_and_behind_a_stop_string_in_one_token() -> None:
    assert kept(["one STOP two"], "STOP") == (["one "], "", True)


def test_without_stop_strings_nothing_is_held_back() -> None:
    assert kept(["a", "b"]) == (["a", "b"], "", False)


def until_stop(line: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The definition: the first place where any stop string is complete, the longest there."""
    for end in range(1, len(line) + 1):
        complete = [stop for stop in stops if line[:end].endswith(stop)]
        if complete:
            return line[: end - max(map(len, complete))], True
    return line, False


@pytest.mark.parametrize("seed", range(200))
def test_what_is_kept_does_not_depend_on_how_the_text_arrives(seed: int) -> None:
    draw = random.Random(seed)

    def word(low: int, high: int) -> str:
        return "".join(draw.choices("ab", k=draw.randint(low, high)))

    line, stops = word(0, 30), [word(1, 6) for _ in range(draw.randint(1, 4))]
    cuts = sorted(draw.choices(range(len(line) + 1), k=6))
    parts = [line[a:b] for a, b in zip([0, *cuts], [*cuts, len(line)], strict=True)]
    given, rest, found = kept(parts, *stops)
    assert ("".join(given) + rest, found) == until_stop(line, stops)
    for count in range(len(parts)):
        early = "".join(given[:count])
        doubtful = "".join(parts[:count])[len(early) :]
        assert found or not doubtful or any(stop.startswith(doubtful) for stop in stops)
