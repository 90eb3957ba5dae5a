"""`think` on the real server: what callers may ask for, what is refused, and what stays behind."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from deploy.figures import Row, read_metrics, rows
from deploy.launcher import Server
from tests.server.asking import Ask, ask, asking, call

pytestmark = pytest.mark.server

ORDER = "I would like two cheeseburgers and a large Coke please."
ASKS = [ORDER, "Do you have pizza?", "What time do you close?"]
SOON_S = 10.0
SLOTS = 8
TOKENIZER = Path(__file__).parents[2] / "model_repository" / "think" / "1" / "tokenizer.json"


@pytest.fixture(scope="module")
def stub(server: Server) -> Iterator[Ask]:
    with asking(server.grpc_address) as stub:
        yield stub


def told(server: Server, name: str) -> list[Row]:
    """A figure of think."""
    every = rows(read_metrics(server.metrics_address))
    return [row for row in every if row.stage == "think" and row.name == f"tristage_{name}"]


def slots(server: Server) -> dict[str, float]:
    """By state."""
    return {row.labels["state"]: row.value for row in told(server, "slots")}


def gauge(server: Server, name: str) -> float:
    (row,) = told(server, name)
    return row.value


@pytest.mark.parametrize("heard", ["", "   ", "\n\t"])
def test_nothing_heard_is_answered_alone_while_others_generate(stub: Ask, heard: str) -> None:
    """Public case G1."""
    alone = [ask(stub, one) for one in ASKS]
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(ask, stub, one, f"other-{n}") for n, one in enumerate(ASKS)]
        nothing = pool.submit(ask, stub, heard, "nothing").result()
        assert [one.result() for one in others] == alone
    assert (nothing.pieces, nothing.status, nothing.error) == ([""], "no_speech", "")


@pytest.mark.parametrize("words", [400, 5000, 200_000])
def test_more_than_the_context_holds_is_refused_alone(stub: Ask, words: int) -> None:
    """Public case G3."""
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(ask, stub, ORDER, "other")
        long = ask(stub, "cheeseburger " * words, "long")
        assert "code=INVALID_INPUT" in long.error
        assert re.search(r"at most \d+", long.error), long.error
        assert other.result().status == "stop"


def test_a_history_longer_than_the_context_is_cut_at_its_oldest_end(stub: Ask) -> None:
    lines = [
        {"role": role, "text": f"{number} burgers"}
        for number in range(200)
        for role in ("user", "assistant")
    ]
    said = ask(stub, "Do you have pizza?", tensors={"HISTORY": json.dumps(lines)})
    assert (said.error, said.status) == ("", "stop")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "nan"),
        ("temperature", "inf"),
        ("temperature", "-0.1"),
        ("top_p", "0"),
        ("top_p", "nan"),
        ("top_p", "1.0001"),
        ("top_k", 0),
        ("top_k", -1),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 513),
        ("max_tokens", 2**31),
        ("repetition_penalty", "inf"),
        ("logit_bias", '{"99999999": 1}'),
        ("logit_bias", "[]"),
        ("stop", '[""]'),
        ("stop", "done"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(stub: Ask, name: str, value: Any) -> None:
    """Public cases G4 and G5."""
    said = ask(stub, ORDER, **{name: value})
    assert "code=INVALID_INPUT" in said.error
    assert name in said.error


def test_a_sampled_answer_is_the_same_again_with_its_seed(stub: Ask) -> None:
    how = {"temperature": "2.0", "top_k": 64, "top_p": "0.95"}
    with ThreadPoolExecutor(8) as pool:
        seeds = [1, 2, 3, 4, 5, 6, 7, 8]
        together = list(pool.map(lambda s: ask(stub, ORDER, f"s{s}", seed=s, **how), seeds))
    assert [ask(stub, ORDER, seed=seed, **how) for seed in seeds[:3]] == together[:3]
    assert len({said.text for said in together}) > 1


def test_temperature_zero_and_one_candidate_are_greedy(stub: Ask) -> None:
    greedy = ask(stub, ORDER)
    assert ask(stub, ORDER, temperature="0.0005", seed=9) == greedy
    assert ask(stub, ORDER, temperature="2", top_k=1, seed=9) == greedy


def test_an_answer_ends_before_its_stop_string_and_says_nothing_of_it(stub: Ask) -> None:
    whole = ask(stub, ORDER).text
    middle = whole.split()[3]
    said = ask(stub, ORDER, stop=json.dumps([middle]))
    assert (said.status, said.error) == ("stop", "")
    assert said.text == whole[: whole.index(middle)].strip()
    assert ask(stub, ORDER, stop=json.dumps([middle + " but never so"])).text == whole


def test_tokens_that_are_biased_away_are_not_said(stub: Ask) -> None:
    """A word may be written by other tokens, with a blank before it or in parts: all of them."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    first = ask(stub, ORDER).text.split()[0]
    begin = [
        str(token)
        for token in tokenizer.get_vocab().values()
        if (text := tokenizer.decode([token]).strip()) and first.startswith(text)
    ]
    said = ask(stub, ORDER, logit_bias=json.dumps(dict.fromkeys(begin, -100)))
    assert (said.status, said.error) == ("stop", "")
    assert not said.text.startswith(first)


def test_an_answer_that_may_not_go_on_says_that_it_was_cut(stub: Ask) -> None:
    limited = ask(stub, ORDER, max_tokens=3)
    assert limited.status == "length"
    assert limited.text
    assert ask(stub, ORDER).text.startswith(limited.text)


def test_a_second_turn_says_the_same_whether_its_session_is_known_or_not(
    server: Server, stub: Ask
) -> None:
    first = ask(stub, ORDER, "a1", {"SESSION_ID": "known"})
    history = [{"role": "user", "text": ORDER}, {"role": "assistant", "text": first.text}]
    more = {"HISTORY": json.dumps(history)}
    again = ask(stub, "And a small coffee.", "a2", {"SESSION_ID": "known", **more})
    assert ask(stub, "And a small coffee.", "a3", {"SESSION_ID": "new", **more}) == again
    assert gauge(server, "session_bytes") > 0
    assert again.status == "stop"


def test_a_session_id_that_is_a_text_of_its_own_is_refused(stub: Ask) -> None:
    assert "SESSION_ID" in ask(stub, ORDER, tensors={"SESSION_ID": "x" * 257}).error


def test_after_a_hundred_callers_have_left_every_slot_is_free(server: Server, stub: Ask) -> None:
    """Public case G10."""
    before = told(server, "steps_total")
    for crowd in range(5):
        calls = [
            call(stub, ORDER, f"gone-{crowd}-{n}", {}, {"max_tokens": 64, "temperature": "2"})
            for n in range(20)
        ]
        time.sleep(0.05)
        for one in calls:
            one.cancel()
    deadline = time.monotonic() + SOON_S
    idle = {"running": 0, "waiting": 0, "free": SLOTS}
    while told(server, "steps_total") == before or slots(server) != idle:
        assert time.monotonic() < deadline, slots(server)
        time.sleep(0.05)
    assert ask(stub, ORDER, "the 101st").status == "stop"
