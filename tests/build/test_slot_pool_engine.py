"""The slot-pool engine on the exported graphs: a sequence's tokens do not depend on its company.

Every way of running is compared with running alone, greedily, up to the end token.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from python_backends.ar_loop.prompt import Utterance, prompt_tokens
from python_backends.errors import InvalidInput, StageFailed
from python_backends.scheduling.continuous import ContinuousBatch, Member, Move
from python_backends.slot_engine.command import GREEDY, Command, Decode, Prefill, Sampling
from python_backends.slot_engine.engine import SlotPoolEngine

REPOSITORY = Path(__file__).parents[2] / "model_repository"
LIMIT = 20
HEARD = [
    "I would like two cheeseburgers and a large Coke please.",
    "Do you have pizza?",
    "Can I get three blueberry muffins and a hot chocolate?",
    "Make that a small coffee instead.",
    "What time do you close?",
    "No thanks, that is all.",
]


@dataclass(eq=False)
class Prompted:
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    sampling: Sampling = GREEDY


@pytest.fixture(scope="module")
def engine() -> SlotPoolEngine:
    return SlotPoolEngine(REPOSITORY / "think_step" / "1", slots=4, capacity=512)


@pytest.fixture(scope="module")
def end() -> int:
    found = json.loads((REPOSITORY / "think_step" / "1" / "generation.json").read_text())["end"]
    return int(found[0])


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Prompts of quite different lengths."""
    tokenizer = Tokenizer.from_file(str(REPOSITORY / "think" / "1" / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    histories: list[list[Utterance]] = [[] for _ in HEARD]
    histories[3] = [Utterance("user", HEARD[0]), Utterance("assistant", "Got it. Anything else?")]
    return [prompt_tokens(h, heard, encode) for h, heard in zip(histories, HEARD, strict=True)]


def generate(
    engine: SlotPoolEngine,
    prompts: Sequence[list[int]],
    end: int,
    *,
    chunk: int = 512,
    every: int = 0,
    sampling: Sampling = GREEDY,
) -> list[list[int]]:
    """Tokens of all prompts, decoded in one continuous batch; a new one arrives `every` steps."""
    batch: ContinuousBatch[Prompted] = ContinuousBatch(engine.slots, engine.capacity, chunk)
    members = [Prompted(prompt, sampling=sampling) for prompt in prompts]
    arrivals = iter(members)
    for number in _steps(batch, arrivals, every):
        plan = batch.plan()
        if plan is None:
            continue
        part = plan.chunk
        prefill = decode = None
        if part is not None:
            one = part.member.payload
            tokens = np.array(one.prompt[part.start : part.start + part.count], np.int64)
            prefill = Prefill(part.row, part.start, tokens, part.is_last, one.sampling)
        if plan.decode:
            last = np.array([member.payload.tokens[-1] for member in plan.decode], np.int64)
            starts = np.array([member.length for member in plan.decode], np.int64)
            decode = Decode(last, starts, tuple(m.payload.sampling for m in plan.decode))
        result = engine.run(Command(number, plan.moves, prefill, decode))
        batch.commit(plan)
        drawn = []
        if result.decode is not None:
            drawn = list(zip(plan.decode, result.decode.tokens, strict=True))
        if part is not None and result.prefill is not None:
            drawn.append((part.member, result.prefill.tokens[0]))
        for member, token in drawn:
            member.payload.tokens.append(int(token[0]))
            if member.exhausted or token[0] == end:
                batch.leave(member)
        batch.check_integrity()
    return [member.tokens for member in members]


def _steps(
    batch: ContinuousBatch[Prompted], arrivals: Iterator[Prompted], every: int
) -> Iterator[int]:
    """Command numbers, letting members arrive at once (`every` 0) or one by one."""
    number, left = 0, True
    while left or batch.members():
        while left and (every == 0 or number % every == 0):
            one = next(arrivals, None)
            left = one is not None
            if one is not None:
                batch.join(Member(one, prompt=len(one.prompt), max_new=LIMIT))
            if every:
                break
        yield number
        number += 1


@pytest.fixture(scope="module")
def alone(engine: SlotPoolEngine, prompts: list[list[int]], end: int) -> list[list[int]]:
    return [generate(engine, [prompt], end)[0] for prompt in prompts]


def test_batched_is_alone(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    assert generate(engine, prompts, end) == alone


@pytest.mark.parametrize("every", [1, 3])
def test_staggered_and_compacted_is_alone(
    engine: SlotPoolEngine,
    prompts: list[list[int]],
    end: int,
    alone: list[list[int]],
    every: int,
) -> None:
    assert generate(engine, prompts, end, chunk=16, every=every) == alone


def test_chunked_prefill_is_alone(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    assert [generate(engine, [prompt], end, chunk=7)[0] for prompt in prompts] == alone


def test_a_reused_row_forgets_its_previous_user(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    secret = (prompts[3] * 4)[:200]
    generate(engine, [secret], end)
    assert generate(engine, [prompts[1]], end)[0] == alone[1]


def test_sampling_depends_on_the_seed_and_not_on_the_company(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int
) -> None:
    how = Sampling(temperature=2.0, seed=5)
    apart = [generate(engine, [prompt], end, sampling=how)[0] for prompt in prompts[:3]]
    assert generate(engine, prompts[:3], end, sampling=how) == apart
    other = Sampling(temperature=2.0, seed=6)
    assert generate(engine, prompts[:3], end, sampling=other) != apart


def test_commands_out_of_order_are_refused(engine: SlotPoolEngine) -> None:
    engine.run(Command(0))
    with pytest.raises(StageFailed, match="came where 1 was due"):
        engine.run(Command(2))
    engine.run(Command(-1))
    engine.run(Command(1))


@pytest.mark.parametrize(("row", "start", "count"), [(0, 510, 3), (4, 0, 1), (0, 0, 513)])
def test_what_does_not_fit_the_pool_is_refused(
    engine: SlotPoolEngine, row: int, start: int, count: int
) -> None:
    part = Prefill(row, start, np.ones(count, np.int64), is_last=True)
    with pytest.raises(InvalidInput, match="the pool has 4 rows of 512"):
        engine.run(Command(0, prefill=part))


def test_a_row_that_became_non_finite_is_marked_and_scrubbed(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    tokens = np.array(prompts[1], np.int64)
    engine.run(Command(0, prefill=Prefill(0, 0, tokens, is_last=True)))
    engine.pools.kv["v0"][0, :, : len(tokens)] = np.nan
    step = Decode(np.array([alone[1][0]]), np.array([len(tokens)]), (GREEDY,))
    result = engine.run(Command(1, decode=step))
    assert result.decode is not None
    assert result.decode.tokens.tolist() == [[-1]]
    assert np.isfinite(engine.pools.kv["v0"]).all()
    assert generate(engine, [prompts[1]], end)[0] == alone[1]


def test_whisper_rows_keep_their_own_sound_when_they_move() -> None:
    folder = REPOSITORY / "asr_decode_step" / "1"
    engine = SlotPoolEngine(folder, slots=3, capacity=448)
    prompt = np.array(json.loads((folder / "generation.json").read_text())["prompt"], np.int64)
    draw = np.random.default_rng(0)
    sounds = [draw.standard_normal((50 + 30 * n, 384)).astype(np.float32) for n in range(3)]

    def admit(number: int, row: int, sound: int) -> Command:
        context = {"HIDDEN": sounds[sound]}
        return Command(number, prefill=Prefill(row, 0, prompt, True, GREEDY, context))

    first = []
    for number, sound in enumerate(range(3)):
        result = engine.run(admit(number, 0, sound))
        assert result.prefill is not None
        first.append(int(result.prefill.tokens[0, 0]))
    for row in range(3):
        engine.run(admit(3 + row, row, row))
    step = Decode(np.array([first[2]]), np.array([2]), (GREEDY,))
    moved = engine.run(Command(6, moves=(Move(2, 0, 2),), decode=step)).decode
    engine.run(admit(7, 0, 2))
    still = engine.run(Command(8, decode=step)).decode
    assert moved is not None
    assert still is not None
    assert moved.tokens.tolist() == still.tokens.tolist()
    assert np.allclose(moved.scores, still.scores, atol=1e-5)
