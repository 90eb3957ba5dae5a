"""Errors keep their meaning as text, whatever is wrapped around them."""

from random import Random

import pytest

from python_backends import errors
from python_backends.errors import (
    Cancelled,
    DeadlineMissed,
    InvalidInput,
    Overloaded,
    StageError,
    StageFailed,
)

KINDS = (InvalidInput, Overloaded, DeadlineMissed, Cancelled, StageFailed)


def parsed(text: str) -> StageError:
    found = errors.parse(text)
    assert found is not None, text
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retry_after_ms", [None, 0, 250])
def test_an_error_survives_the_wire(kind: type[StageError], retry_after_ms: int | None) -> None:
    sent = kind("no room now", stage="think", turn="a-1", retry_after_ms=retry_after_ms)
    got = parsed(sent.to_wire())
    assert type(got) is kind
    assert (got.message, got.stage, got.turn) == ("no room now", "think", "a-1")
    assert got.retry_after_ms == retry_after_ms


def test_an_error_is_found_inside_what_servers_wrap_around_it() -> None:
    wire = Overloaded("later, please", stage="encode", turn="t", retry_after_ms=40).to_wire()
    got = parsed(f"in ensemble 'voice_turn', [request id: t] {wire}\nTraceback: [x] key=1] more")
    assert isinstance(got, Overloaded)
    assert (got.stage, got.turn, got.retry_after_ms) == ("encode", "t", 40)
    assert got.message == "later, please"


def test_the_wire_form_is_one_line_whatever_the_message_holds() -> None:
    breaks = "a\nb\r\nc\x0bd\x0ce\x1cf\x85g\u2028h\u2029i\tj"
    wire = InvalidInput(breaks, stage="th\nink", turn="x\u2028y").to_wire()
    assert len(wire.splitlines()) == 1
    assert parsed(wire).message == "a b c d e f g h i j"


def test_hostile_turn_ids_cannot_forge_fields() -> None:
    wire = Cancelled("gone", stage="think", turn="x] code=INVALID_INPUT [tristage").to_wire()
    got = parsed(wire)
    assert isinstance(got, Cancelled)
    assert got.stage == "think"
    assert got.message == "gone"


def test_a_message_that_looks_like_a_field_stays_a_message() -> None:
    got = parsed(InvalidInput("steps=99] is too many", stage="acoustic").to_wire())
    assert isinstance(got, InvalidInput)
    assert got.message == "steps=99] is too many"


def test_the_outermost_of_two_errors_counts() -> None:
    inner = Overloaded("inner", stage="think_step").to_wire()
    assert isinstance(parsed(StageFailed(inner, stage="think").to_wire()), StageFailed)


def test_an_empty_message_still_parses() -> None:
    assert parsed(Cancelled("").to_wire().strip()).message == ""


@pytest.mark.parametrize("retry", ["-5", "soon", "\u00b2", "9" * 5000])
def test_a_senseless_retry_time_is_no_retry_time(retry: str) -> None:
    assert parsed(f"[tristage code=OVERLOADED retry_after_ms={retry}] x").retry_after_ms is None


def test_an_unknown_code_is_some_stage_error() -> None:
    assert type(parsed("[tristage code=NEW_KIND] x")) is StageError


@pytest.mark.parametrize("text", ["", "Socket closed", "[tristage ] x", "[tristage nothing] x"])
def test_foreign_text_is_no_error_of_ours(text: str) -> None:
    assert errors.parse(text) is None


def test_foreign_text_becomes_the_failure_of_the_stage_that_was_called() -> None:
    got = errors.from_text("Socket\nclosed", stage="think", turn="t")
    assert isinstance(got, StageFailed)
    assert (got.message, got.stage, got.turn) == ("Socket closed", "think", "t")
    assert errors.from_text("", stage="think").message == "no reason given"


def test_a_deeper_stage_keeps_its_name() -> None:
    error = errors.from_text(StageFailed("x", stage="think_step").to_wire()).at("think", "t")
    assert (error.stage, error.turn) == ("think_step", "t")


def test_parsing_hostile_text_comes_to_an_end() -> None:
    """A pattern that backtracks would not come back within the life of the universe."""
    assert errors.parse("[tristage " + "a=" * 20_000) is None
    assert errors.parse("[tristage " + "a=b " * 20_000) is None


def test_random_text_never_breaks_the_parser() -> None:
    random = Random(5)
    alphabet = ["[tristage ", "code=", "OVERLOADED", "] ", "=", " ", "\n", "a", "\u00e9", "["]
    for _ in range(2000):
        text = "".join(random.choices(alphabet, k=random.randrange(20)))
        found = errors.parse(text)
        assert found is None or len(found.to_wire().splitlines()) == 1
