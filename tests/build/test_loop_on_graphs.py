"""The whole AR loop on the LLM's graph: two engines, and prefixes restored, change no token."""

from random import Random

import pytest
from tokenizers import Tokenizer

from python_backends.bridge import CancelTurn
from python_backends.slot_engine.engine import SlotPoolEngine
from tests.build import talk as talks
from tests.build.talk import Conversation, Talk, said

HEARD = [
    "I would like two cheeseburgers and a large Coke please.",
    "Do you have pizza?",
    "Can I get three blueberry muffins and a hot chocolate?",
    "What time do you close?",
    "No thanks, that is all.",
]


@pytest.fixture(scope="module")
def engines() -> list[SlotPoolEngine]:
    return talks.engines(2)


@pytest.fixture(scope="module")
def lone() -> SlotPoolEngine:
    """The one that is asked alone: an engine serves one loop at a time."""
    return talks.engines(1)[0]


@pytest.fixture(scope="module")
def end() -> int:
    return talks.end_token()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return talks.tokenizer()


def alone(engine: SlotPoolEngine, end: int, prompt: list[int]) -> list[int]:
    talk = Talk([engine], end)
    sender = talk.ask("alone", prompt)
    talk.run()
    return said(sender)


def test_two_engines_say_what_one_says_alone(
    engines: list[SlotPoolEngine], lone: SlotPoolEngine, end: int, tokenizer: Tokenizer
) -> None:
    prompts = [next(Conversation(tokenizer, [heard])) for heard in HEARD]
    talk = Talk(engines, end)
    senders = [talk.ask(f"{number}/1", prompt) for number, prompt in enumerate(prompts)]
    talk.run()
    assert [said(one) for one in senders] == [alone(lone, end, p) for p in prompts]


def test_a_restored_prefix_gives_the_tokens_that_computing_it_gives(
    engines: list[SlotPoolEngine], lone: SlotPoolEngine, end: int, tokenizer: Tokenizer
) -> None:
    talk = Talk(engines, end, session_bytes=2**28)
    conversation = Conversation(tokenizer, HEARD)
    previous = 0
    for number, prompt in enumerate(conversation):
        sender = talk.ask(f"a/{number}", prompt)
        talk.run()
        assert said(sender) == alone(lone, end, prompt)
        conversation.answered(said(sender))
        if number:
            assert talk.restored[-1] >= previous, "what the turn before began with was computed"
        previous = len(prompt) - 1
    assert len(talk.restored) == len(HEARD) - 1


def test_conversations_with_cancels_and_little_room_are_answered_as_if_each_were_alone(
    engines: list[SlotPoolEngine], lone: SlotPoolEngine, end: int, tokenizer: Tokenizer
) -> None:
    random = Random(3)
    room = 900 * engines[0].pools.token_bytes
    talk = Talk(engines, end, session_bytes=room)
    people = {name: Conversation(tokenizer, HEARD[:3]) for name in "abcd"}
    for number in range(3):
        prompts = {name: next(person) for name, person in people.items()}
        senders = {}
        for name, prompt in prompts.items():
            senders[name] = talk.ask(f"{name}/{number}", prompt)
            for _ in range(random.randint(0, 3)):
                talk.step()
        gone = random.choice("abcd")
        talk.loop._serve(CancelTurn(f"{gone}/{number}"))
        talk.run()
        for name, person in people.items():
            if name == gone and "CANCELLED" in senders[name].error():
                person.answered([])
                continue
            assert said(senders[name]) == alone(lone, end, prompts[name])
            person.answered(said(senders[name]))
    assert talk.restored
    assert talk.loop.prefixes.held_bytes <= room
