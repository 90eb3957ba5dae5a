"""Request parameters are read strictly: a wrong one is named, never guessed at."""

import json
from dataclasses import fields
from typing import Any

import pytest

from python_backends.bridge.options import MAX_SEED, Options
from python_backends.errors import InvalidInput

BOUNDS: dict[str, tuple[float, float]] = {
    "max_tokens": (1, 256),
    "temperature": (0, 2),
    "speech_temperature": (0, 2),
    "seed": (0, MAX_SEED),
    "steps": (0, 32),
    "min_frames": (0, 3000),
    "deadline_ms": (0, 3_600_000),
}


def test_no_parameters_are_the_defaults() -> None:
    assert Options.from_json("") == Options.from_json("{}") == Options()


def test_every_option_is_bounded_or_enumerated() -> None:
    """A new option needs a row above, or a test of its own below."""
    assert {field.name for field in fields(Options)} == BOUNDS.keys() | {
        "solver",
        "stream",
        "traceparent",
    }


@pytest.mark.parametrize("name", BOUNDS)
def test_both_bounds_are_accepted_and_nothing_beyond_them(name: str) -> None:
    low, high = BOUNDS[name]
    for value in (low, high):
        assert getattr(Options.parse({name: value}), name) == value
        assert getattr(Options.parse({name: str(value)}), name) == value
    for value in (low - 1, high + 1, str(low - 1), str(high + 1)):
        with pytest.raises(InvalidInput, match=name):
            Options.parse({name: value})


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "", "two", "9" * 400, "9" * 5000, None, True, [], {}]
)
def test_what_is_no_number_in_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=name):
        Options.parse({name: value})


@pytest.mark.parametrize("name", ["temperature", "speech_temperature"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 10**400])
def test_numbers_that_are_not_finite_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        Options.parse({name: value})


@pytest.mark.parametrize("value", [1.0, 2.5])
def test_a_real_number_is_no_integer(value: float) -> None:
    with pytest.raises(InvalidInput, match="max_tokens"):
        Options.parse({"max_tokens": value})


@pytest.mark.parametrize(
    ("value", "read"), [(True, True), (False, False), ("true", True), ("false", False)]
)
def test_truth_is_spelled_in_one_way(value: Any, read: bool) -> None:
    assert Options.parse({"stream": value}).stream is read


@pytest.mark.parametrize("value", [0, 1, 1.0, "False", "1", "", None, []])
def test_nothing_else_is_truth(value: Any) -> None:
    with pytest.raises(InvalidInput, match="stream"):
        Options.parse({"stream": value})


def test_known_solvers_are_accepted_and_others_named() -> None:
    assert [Options.parse({"solver": name}).solver for name in ("", "euler", "midpoint")] == [
        "",
        "euler",
        "midpoint",
    ]
    for wrong in ("heun", "EULER", 1):
        with pytest.raises(InvalidInput, match="solver"):
            Options.parse({"solver": wrong})


TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "header",
    [
        "",
        f"00-{TRACE}-{PARENT}-00",
        f"00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-ff",
        f"01-{TRACE}-{PARENT}-01",
        f"fe-{TRACE}-{PARENT}-01-",
        f"cc-{TRACE}-{PARENT}-01-what-the-future.will-be-like",
    ],
)
def test_a_trace_context_of_any_version_is_passed_on_as_it_came(header: str) -> None:
    options = Options.parse({"traceparent": header, "steps": 2})
    assert options.given() == {"steps": 2} | ({"traceparent": header} if header else {})
    assert Options.from_json(json.dumps(options.given())) == options


@pytest.mark.parametrize(
    "header",
    [
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01-",
        f"01-{TRACE}-{PARENT}-01.more",
        f"01-{TRACE}-{PARENT}-01-{'x' * 999}",
        f"01-{TRACE}-{PARENT}-01-über",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-1",
        f"00-{TRACE[1:]}-{PARENT}-01",
        f"0-{TRACE}-{PARENT}-01",
        f"00_{TRACE}_{PARENT}_01",
        f" 00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01\n",
        f"00-{TRACE}-{PARENT}",
        "none",
        1,
        None,
    ],
)
def test_what_is_no_trace_context_is_refused(header: Any) -> None:
    with pytest.raises(InvalidInput, match="traceparent"):
        Options.parse({"traceparent": header})


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"'max_token'; known: max_tokens, temperature") as found:
        Options.parse({"max_token": 5})
    assert found.value.code == "INVALID_INPUT"


def test_what_the_server_adds_is_not_the_callers() -> None:
    sent = {"triton_enable_empty_final_response": True, "binary_data_output": True, "steps": 2}
    assert Options.from_json(json.dumps(sent)).steps == 2


def test_errors_stay_short_however_long_the_value() -> None:
    for parameters in (
        {"x" * 9999: 1},
        {"steps": "9" * 4000},
        {"solver": "y" * 9999},
        {"traceparent": "z" * 9999},
    ):
        with pytest.raises(InvalidInput) as found:
            Options.parse(parameters)
        assert len(found.value.message) < 400
