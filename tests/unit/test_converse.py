"""The `think` task: what ends an answer, and what is said until then."""

import json
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.converse import Converse
from python_backends.bridge import Request
from python_backends.errors import InvalidInput
from python_backends.pieces import LAST_PIECE
from python_backends.slot_engine.command import Sampling
from tests import fakes

END = 0
WORDS = ["<end>", "DEF", "G", "HI", "J", "K", "Two burgers. ", "Anything", " else?", "?"]
SETTINGS = LoopSettings(
    task="converse",
    step_model="step",
    engine="bls",
    slots=3,
    capacity=512,
    prefill_chunk=16,
    max_new_tokens=64,
    max_waiting=5,
)


@pytest.fixture(scope="module")
def task() -> Converse:
    """With a tokenizer of ten tokens, which joins them as they are."""
    words = models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="?")
    tokenizer = Tokenizer(words)
    tokenizer.decoder = decoders.Fuse()
    return Converse(tokenizer, frozenset({END}), SETTINGS)


def request_of(**parameters: Any) -> tuple[Request, fakes.InferenceResponseSender]:
    native = fakes.arriving({"HEARD": fakes.text("Hello")}, parameters=parameters)
    request = Request(native, "think", lambda _: None)
    request.parse_options()
    return request, native.sender


def answer(task: Converse, tokens: list[int], **parameters: Any) -> tuple[list[str], str, int]:
    """Pieces, status, and how many of the tokens were used, as the loop would use them."""
    request, sender = request_of(**parameters)
    [reply] = task.open(request)
    ended, used = False, 0
    while used < len(tokens) and not ended:
        drawn = np.array(tokens[used : used + 1], np.int64)
        ended = reply.advance(drawn)
        reply.deliver(drawn, 0.0, 0.0)
        used += 1
    reply.close("stop" if ended else "length")
    found = sender.values()
    assert [bool(one["PIECE"][0, 2] & LAST_PIECE) for one in found] == [
        *[False] * (len(found) - 1),
        True,
    ]
    pieces = [bytes(one["TEXT"][0, 0]).decode() for one in found]
    return pieces, bytes(found[-1]["STATUS"][0, 0]).decode(), used


def ids(*words: str) -> list[int]:
    return [WORDS.index(word) for word in words]


STOP = json.dumps(["DEFGHIJ"])


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_ends_before_a_stop_string_with_the_token_that_completes_it(
    task: Converse, stream: bool
) -> None:
    tokens = ids("Two burgers. ", "DEF", "G", "HI", "J", "K", "K")
    pieces, status, used = answer(task, tokens, stop=STOP, stream=stream)
    assert (" ".join(pieces).strip(), status, used) == ("Two burgers.", "stop", 5)


@pytest.mark.parametrize("stream", [True, False])
def test_what_nearly_was_a_stop_string_is_said(task: Converse, stream: bool) -> None:
    tokens = ids("Two burgers. ", "DEF", "G", "HI", "K", "<end>")
    pieces, status, used = answer(task, tokens, stop=STOP, stream=stream)
    assert (" ".join(pieces), status, used) == ("Two burgers. DEFGHIK", "stop", 6)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("last", "status"), [("<end>", "stop"), ("HI", "length")])
def test_what_might_have_become_a_stop_string_is_said_when_the_answer_ends(
    task: Converse, stream: bool, last: str, status: str
) -> None:
    pieces, found, _ = answer(task, ids("DEF", "G", last), stop=STOP, stream=stream)
    said = "DEFG" if last == "<end>" else "DEFGHI"
    assert (" ".join(pieces), found) == (said, status)


def test_a_stop_string_that_opens_the_answer_leaves_one_empty_piece(task: Converse) -> None:
    assert answer(task, ids("DEF", "G"), stop='["E", "D"]') == ([""], "stop", 1)


@pytest.mark.parametrize("stop", [{}, {"stop": STOP}])
@pytest.mark.parametrize("stream", [True, False])
def test_stop_strings_that_do_not_occur_change_nothing(
    task: Converse, stop: dict[str, str], stream: bool
) -> None:
    tokens = ids("Two burgers. ", "Anything", " else?", "<end>")
    pieces, status, _ = answer(task, tokens, stream=stream, **stop)
    assert pieces == (
        ["Two burgers.", "Anything else?"] if stream else ["Two burgers. Anything else?"]
    )
    assert status == "stop"


def test_an_answer_that_does_not_end_by_itself_ends_by_length(task: Converse) -> None:
    assert answer(task, ids("Two burgers. ", "Anything"))[:2] == (
        ["Two burgers.", "Anything"],
        "length",
    )


def test_sampling_is_what_the_caller_asked_for(task: Converse) -> None:
    request, _ = request_of(
        temperature="0.7",
        seed=5,
        top_k=12,
        top_p="0.9",
        repetition_penalty="1.2",
        logit_bias='{"9": -100, "1": 2}',
    )
    [reply] = task.open(request)
    assert reply.sampling == Sampling(0.7, 5, 12, 0.9, 1.2, ((9, -100.0), (1, 2.0)))
    plain, _ = request_of()
    assert task.open(plain)[0].sampling == Sampling()


def test_a_bias_of_a_token_that_does_not_exist_is_that_requests_fault(task: Converse) -> None:
    request, sender = request_of(logit_bias='{"3": 1, "10": 1}')
    with pytest.raises(InvalidInput, match="logit_bias names token 10; 0 to 9 are known"):
        task.open(request)
    assert not sender.responses
