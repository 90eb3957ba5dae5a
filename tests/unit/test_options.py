"""Request parameters are read strictly: a wrong one is named, never guessed at."""

import json
from dataclasses import fields
from typing import Any

import pytest

from python_backends.bridge import options
from python_backends.bridge.options import MAX_CALLER_CHARS, MAX_SEED, Options
from python_backends.diffusion_lock.solver import SOLVERS
from python_backends.errors import InvalidInput
from python_backends.speech import VOICES

BOUNDS: dict[str, tuple[float, float]] = {
    "max_tokens": (1, 256),
    "temperature": (0, 2),
    "top_k": (1, 64),
    "repetition_penalty": (0.5, 2),
    "speech_temperature": (0, 1),
    "seed": (0, MAX_SEED),
    "steps": (0, 32),
    "min_frames": (0, 3000),
    "deadline_ms": (0, 3_600_000),
    "rate_hz": (8000, 48_000),
}


@pytest.mark.parametrize("name", ["language", "reference_audio", "speed", "guidance"])
@pytest.mark.parametrize("value", ["en", "", 0, 2, 0.5])
def test_a_choice_that_these_weights_do_not_offer_is_refused_by_name(name: str, value: Any) -> None:
    """Public cases A13, B7, B8 and C13: never taken and ignored."""
    with pytest.raises(InvalidInput, match=f"unknown parameter '{name}'; known: max_tokens"):
        Options.parse({name: value})


def test_no_parameters_are_the_defaults() -> None:
    assert Options.from_json("") == Options.from_json("{}") == Options()


def test_every_option_is_bounded_or_enumerated() -> None:
    """A new option needs a row above, or a test of its own below."""
    assert {field.name for field in fields(Options)} == BOUNDS.keys() | {
        "caller",
        "lead_ms",
        "logit_bias",
        "ordered",
        "partials",
        "solver",
        "stop",
        "stream",
        "top_p",
        "traceparent",
        "voice",
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


@pytest.mark.parametrize(
    "name", ["temperature", "speech_temperature", "top_p", "repetition_penalty"]
)
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
    for known in ("", *SOLVERS):
        assert Options.parse({"solver": known}).solver == known
    for wrong in ("heun", "EULER", 1):
        with pytest.raises(InvalidInput, match="solver"):
            Options.parse({"solver": wrong})


def test_known_voices_are_accepted_and_others_named() -> None:
    assert Options.parse({}).voice == VOICES[0]
    for known in VOICES:
        assert Options.parse({"voice": known}).voice == known
    for wrong in ("", "tenor", "Alto", 1):
        with pytest.raises(InvalidInput, match="voice"):
            Options.parse({"voice": wrong})
    with pytest.raises(InvalidInput, match="'tenor' is unknown; accepted: alto, baritone"):
        Options.parse({"voice": "tenor"})


def test_callers_may_name_what_the_stages_know() -> None:
    """The bridge knows no stage, so the names are written down twice."""
    assert (VOICES, (*SOLVERS,)) == (options.VOICES, options.SOLVERS)


def test_a_share_is_above_nothing_and_at_most_all() -> None:
    for value in (1e-9, 0.5, 1, "0.25", "1.0"):
        assert Options.parse({"top_p": value}).top_p == float(value)
    for value in (0, -0.1, 1.0001, "0", "nan", "NaN", "inf", "", "half", None, True, [], {}):
        with pytest.raises(InvalidInput, match="top_p"):
            Options.parse({"top_p": value})


@pytest.mark.parametrize(
    ("name", "value", "sent", "accepted"),
    [
        ("temperature", "NaN", "nan", "0 to 2"),
        ("temperature", "Inf", "inf", "0 to 2"),
        ("temperature", -0.1, "-0.1", "0 to 2"),
        ("top_p", "0", "0.0", "above 0, up to 1"),
        ("top_p", "NaN", "nan", "above 0, up to 1"),
        ("top_p", "1.0001", "1.0001", "above 0, up to 1"),
        ("top_k", 0, " 0;", "1 to 64"),
        ("top_k", -1, "-1", "1 to 64"),
        ("max_tokens", 0, " 0;", "1 to 256"),
        ("max_tokens", -1, "-1", "1 to 256"),
        ("max_tokens", 2**31, "2147483648", "1 to 256"),
        ("max_tokens", "NaN", "'NaN'", "not an integer"),
        ("repetition_penalty", "NaN", "nan", "0.5 to 2"),
        ("logit_bias", '{"5": NaN}', "token 5 is nan", "-100.0 to 100.0"),
    ],
)
def test_a_refusal_names_the_key_the_value_and_what_is_accepted(
    name: str, value: Any, sent: str, accepted: str
) -> None:
    """Public cases G4 and G5."""
    with pytest.raises(InvalidInput) as found:
        Options.parse({name: value})
    message = found.value.message.lower()
    assert name in message
    assert accepted in message
    assert sent.lower() in message


def test_a_temperature_of_nothing_is_accepted() -> None:
    assert Options.parse({"temperature": "0"}).temperature == 0


def test_biases_are_a_json_object_of_token_ids() -> None:
    read = Options.parse({"logit_bias": '{"49151": -100, "0": 0.5}'})
    assert read.logit_bias == ((49151, -100.0), (0, 0.5))
    assert Options.parse({"logit_bias": "{}"}) == Options()
    most = json.dumps({str(10**9 - 1 - token): -99.87654321012345 for token in range(64)})
    assert len(Options.parse({"logit_bias": most}).logit_bias) == 64


@pytest.mark.parametrize(
    "value",
    [
        "",
        "5",
        "null",
        "[[5, 1]]",
        '[["5", 1]]',
        "{5: 1}",
        '{"5": 1',
        '{"": 1}',
        '{"-1": 1}',
        '{"05": 1}',
        '{" 5": 1}',
        '{"5.0": 1}',
        '{"five": 1}',
        '{"\u0665": 1}',
        '{"9999999999": 1}',
        '{"5": "1"}',
        '{"5": true}',
        '{"5": null}',
        '{"5": [1]}',
        '{"5": 100.001}',
        '{"5": -101}',
        '{"5": NaN}',
        '{"5": Infinity}',
        '{"5": 1e999}',
        '{"5": 1, "5": 2}',
        json.dumps({str(token): 1 for token in range(65)}),
        '{"5":' * 600 + "1" + "}" * 600,
        "[" * 4000,
        " " * 4094 + "{}x",
        5,
        None,
        True,
        {"5": 1},
    ],
)
def test_what_is_no_object_of_biases_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="logit_bias") as found:
        Options.parse({"logit_bias": value})
    assert len(found.value.message) < 400


def test_stop_strings_are_a_json_list() -> None:
    assert Options.parse({"stop": '["a", " \\n", "\\ud83d\\udc4d"]'}).stop == ("a", " \n", "👍")
    longest = json.dumps(["👍" * 64] * 4)
    assert Options.parse({"stop": longest}).stop == ("👍" * 64,) * 4


@pytest.mark.parametrize(
    "value",
    [
        "",
        "END",
        '"END"',
        "[]",
        "{}",
        '{"a": 1}',
        "null",
        '[""]',
        '["a", ""]',
        "[1]",
        "[null]",
        '[["a"]]',
        '["a"',
        "[" * 600 + "]" * 600,
        json.dumps(["x" * 65]),
        json.dumps(list("abcde")),
        "[" * 4000,
        '["a"]' + " " * 4096,
        5,
        None,
        True,
        ["a"],
    ],
)
def test_what_is_no_list_of_stop_strings_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="stop") as found:
        Options.parse({"stop": value})
    assert len(found.value.message) < 400


def test_what_was_given_is_passed_on_and_read_again() -> None:
    """A stage elsewhere gets the same options, as parameters that gRPC can carry."""
    options = Options(
        temperature=0.7,
        top_k=64,
        top_p=0.1,
        repetition_penalty=1.1,
        logit_bias=((49151, -100.0), (0, 1 / 3)),
        stop=("\n", "naïve \ud800", '"👍"'),
        stream=False,
        seed=MAX_SEED,
    )
    given = options.given()
    assert given.keys() == {
        "temperature",
        "top_k",
        "top_p",
        "repetition_penalty",
        "logit_bias",
        "stop",
        "stream",
        "seed",
    }
    assert all(isinstance(value, bool | int | str) for value in given.values())
    assert all(value.isascii() for value in given.values() if isinstance(value, str))
    assert Options.from_json(json.dumps(given)) == options
    one_stop = Options(stop=("END",))
    assert Options.parse(one_stop.given()) == one_stop


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


def test_a_caller_is_named_in_so_many_characters() -> None:
    assert Options.parse({"caller": "x" * MAX_CALLER_CHARS}).caller
    with pytest.raises(InvalidInput, match="caller has 129 characters; 128 are accepted"):
        Options.parse({"caller": "x" * (MAX_CALLER_CHARS + 1)})


@pytest.mark.parametrize("lead_ms", [0, 100, 10_000])
def test_a_lead_is_the_servers_own_or_within_bounds(lead_ms: int) -> None:
    assert Options.parse({"lead_ms": lead_ms}).lead_ms == lead_ms


@pytest.mark.parametrize("lead_ms", [-1, 1, 99, 10_001])
def test_a_lead_that_is_out_of_bounds_is_refused(lead_ms: int) -> None:
    with pytest.raises(InvalidInput, match="100 to 10000 is accepted"):
        Options.parse({"lead_ms": lead_ms})
