"""Sampled answers: alone and in company they are the same, but for near-ties."""

from dataclasses import dataclass

import numpy as np
import pytest

from python_backends.slot_engine.command import Command, Prefill, Sampling
from python_backends.slot_engine.engine import SlotPoolEngine
from python_backends.slot_engine.sampling import gumbel
from tests.build import talk as talks
from tests.build.talk import Conversation, Talk, said

COMPANY = 8
HEARD = ["Two cheeseburgers please.", "Do you have pizza?", "What time do you close?"]
TIE = 0.05
"""Of logits over temperature, plus noise. None was ever needed: decode steps give a row the same
numbers in any company."""


@dataclass(frozen=True)
class Run:
    prompt: list[int]
    how: Sampling


def runs(count: int) -> list[Run]:
    tokenizer = talks.tokenizer()
    prompts = [next(Conversation(tokenizer, [heard])) for heard in HEARD]
    temperatures = (1.0, 2.0, 3.0, 4.0)  # the answers are so sure that 1.5 hardly changes them
    return [
        Run(prompts[seed % 3], Sampling(temperatures[seed % 4], seed, top_k=[40, 64, 5][seed % 3]))
        for seed in range(count)
    ]


def answers(engine: SlotPoolEngine, runs: list[Run], company: int) -> list[list[int]]:
    """`company` at a time. Prompts are computed once and restored for all who have the same."""
    talk = Talk([engine], talks.end_token(), session_bytes=2**28)
    found: list[list[int]] = []
    for first in range(0, len(runs), company):
        few = runs[first : first + company]
        senders = [talk.ask(f"{run.prompt[-8:]}/{first}", run.prompt, run.how) for run in few]
        talk.run()
        found += [said(sender) for sender in senders]
    return found


@pytest.mark.parametrize("count", [32, pytest.param(200, marks=pytest.mark.full)])
def test_sampled_answers_do_not_depend_on_company_but_for_near_ties(count: int) -> None:
    (engine,), some = talks.engines(1, slots=COMPANY), runs(count)
    alone, together = answers(engine, some, 1), answers(engine, some, COMPANY)
    differing = [number for number in range(count) if alone[number] != together[number]]
    margins = [
        tie_margin(engine, some[number], alone[number], together[number]) for number in differing
    ]
    print(f"{len(differing)} of {count} differ, by {margins}")
    assert len(differing) <= count // 100
    assert all(margin < TIE for margin in margins)
    assert len({tuple(one) for one in alone}) > count // 2, "hardly anything was sampled"


def tie_margin(engine: SlotPoolEngine, run: Run, one: list[int], other: list[int]) -> float:
    """By how much the better of the two tokens at which the answers part won, when computed again:
    of (logit / temperature + noise)."""
    at = next(i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    tokens = np.array(run.prompt + one[:at], np.int64)
    engine.run(Command(0, prefill=Prefill(0, 0, tokens, True, Sampling())))
    logits = engine.logits(0)[[one[at], other[at]]]
    noise = gumbel(
        np.array([run.how.seed]), np.array([len(tokens)]), np.array([[one[at], other[at]]])
    )[0]
    first, second = logits / run.how.temperature + noise
    return float(abs(first - second))
