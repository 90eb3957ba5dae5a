"""The slot-pool engine on the exported graphs: a sequence's tokens do not depend on its company.

Every way of running is compared with running alone, greedily, up to the end token.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from python_backends.errors import InvalidInput, StageFailed
from python_backends.ordering.prompt import Utterance, prompt_tokens
from python_backends.scheduling.continuous import ContinuousBatch, Member, Move
from python_backends.slot_engine.candidates import CANDIDATES, best_of
from python_backends.slot_engine.command import GREEDY, Command, Decode, Prefill, Sampling
from python_backends.slot_engine.engine import SlotPoolEngine, open_session

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
    return SlotPoolEngine(REPOSITORY / "think_step" / "1", slots=4, capacity=768)


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
    sampling: Sampling | Sequence[Sampling] = GREEDY,
) -> list[list[int]]:
    """Tokens of all prompts, decoded in one continuous batch; a new one arrives `every` steps."""
    ways = [sampling] * len(prompts) if isinstance(sampling, Sampling) else sampling
    batch: ContinuousBatch[Prompted] = ContinuousBatch(engine.slots, engine.capacity, chunk)
    members = [Prompted(prompt, sampling=how) for prompt, how in zip(prompts, ways, strict=True)]
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
    """Public case G13: rows of other lengths, and first steps of the next, in one step."""
    assert generate(engine, prompts, end) == alone


@pytest.mark.parametrize("every", [1, 3])
def test_staggered_and_compacted_is_alone(
    engine: SlotPoolEngine,
    prompts: list[list[int]],
    end: int,
    alone: list[list[int]],
    every: int,
) -> None:
    """Public case G13: a first step with nothing behind it beside rows that have much."""
    assert generate(engine, prompts, end, chunk=16, every=every) == alone


def test_chunked_prefill_is_alone(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    assert [generate(engine, [prompt], end, chunk=7)[0] for prompt in prompts] == alone


def test_a_reused_row_forgets_its_previous_user(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    """Public case G12."""
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


def sampler(logits: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """What the published graph finds."""
    session = open_session(REPOSITORY / "think_step" / "1" / "sampler.onnx", threads=1)
    values, ids = session.run(["values", "ids"], {"logits": logits})
    return values, ids


@pytest.mark.parametrize("rows", [1, 3])
def test_the_graph_finds_the_candidates_that_numpy_finds(rows: int) -> None:
    draw = np.random.default_rng(rows)
    logits = draw.standard_normal((rows, 49152)).astype(np.float32)
    for found, expected in zip(sampler(logits), best_of(logits), strict=True):
        assert found.tolist() == expected.tolist()


def test_the_graph_gives_equal_candidates_in_the_order_of_their_ids() -> None:
    draw = np.random.default_rng(0)
    logits = draw.integers(0, 20, (4, 49152)).astype(np.float32)
    values, ids = sampler(logits)
    for row in range(4):
        expected = np.argsort(-logits[row], kind="stable")[:CANDIDATES]
        assert ids[row].tolist() == expected.tolist()
        assert values[row].tolist() == logits[row, expected].tolist()


def test_an_engine_takes_its_candidates_from_the_graph(engine: SlotPoolEngine) -> None:
    assert engine.rows.best is not best_of


EVERYTHING = Sampling(1.5, 7, 50, 0.9, 1.3, ((42, 3.0), (300, -100.0)))


@pytest.mark.parametrize("every", [0, 2])
def test_company_moves_and_chunks_change_nothing_about_a_sampled_answer(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, every: int
) -> None:
    """With a penalty, so that a row must know what it holds after every move."""
    apart = [generate(engine, [prompt], end, sampling=EVERYTHING)[0] for prompt in prompts]
    together = generate(engine, prompts, end, chunk=16, every=every, sampling=EVERYTHING)
    assert together == apart


def test_greedy_rows_do_not_feel_that_others_sample(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    others = Sampling(2.0, 3, repetition_penalty=1.5)
    ways = [GREEDY, others, GREEDY, others, GREEDY, others]
    assert generate(engine, prompts, end, sampling=ways)[::2] == alone[::2]


def test_one_candidate_is_greedy(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    for how in (Sampling(2.0, 1, top_k=1), Sampling(2.0, 1, top_p=1e-6)):
        assert generate(engine, prompts[:3], end, sampling=how) == alone[:3]


def test_a_row_knows_what_it_holds_and_takes_it_along(
    engine: SlotPoolEngine, prompts: list[list[int]]
) -> None:
    tokens = np.array(prompts[1], np.int64)
    engine.run(Command(0, prefill=Prefill(2, 0, tokens[:9], is_last=False)))
    engine.run(Command(1, prefill=Prefill(2, 9, tokens[9:], is_last=True)))
    step = Decode(np.array([77]), np.array([len(tokens)]), (GREEDY,))
    engine.run(Command(2, moves=(Move(2, 0, len(tokens)),), decode=step))
    assert engine.pools.tokens[0, : len(tokens) + 1, 0].tolist() == [*tokens.tolist(), 77]


def test_the_strongest_penalty_leaves_no_token_twice_in_a_short_answer(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int, alone: list[list[int]]
) -> None:
    """Prompt and answer count as seen; the plain answer repeats what was ordered."""
    said = alone[0]
    assert set(said) & set(prompts[0])
    penalised = generate(engine, prompts[:1], end, sampling=Sampling(repetition_penalty=2.0))[0]
    fresh = [token for token in penalised if token != end]
    assert len(set(fresh)) == len(fresh)
    assert len(set(fresh) & set(prompts[0])) < len(set(said) & set(prompts[0]))


def test_a_bias_forces_a_token_and_forbids_the_end(
    engine: SlotPoolEngine, prompts: list[list[int]], end: int
) -> None:
    forced = generate(engine, prompts[:1], end, sampling=Sampling(bias=((1234, 100.0),)))[0]
    assert forced == [1234] * LIMIT
    endless = generate(engine, prompts[1:2], end, sampling=Sampling(bias=((end, -100.0),)))[0]
    assert end not in endless
    assert len(endless) == LIMIT


def test_a_bias_beyond_the_vocabulary_is_refused(engine: SlotPoolEngine) -> None:
    part = Prefill(0, 0, np.ones(3, np.int64), True, Sampling(bias=((49152, 1.0),)))
    with pytest.raises(InvalidInput, match="bias of token 49152; 0 to 49151 are known"):
        engine.run(Command(0, prefill=part))


def test_the_noise_of_prosody_is_that_of_its_seed_and_position() -> None:
    """Whatever row it stands in, and whoever is beside it."""
    engine = SlotPoolEngine(REPOSITORY / "prosody_step" / "1", slots=3, capacity=32)
    loud, quiet = Sampling(1.0, 8), Sampling(0.5, 9)
    places = np.array([4, 7, 4])
    engine.rows.set_noise(engine.rows.graph.noise, (quiet, GREEDY, loud), places)
    together = engine.rows.graph.noise.copy()
    engine.rows.set_noise(engine.rows.graph.noise, (loud,), places[:1])
    assert engine.rows.graph.noise[0].tolist() == together[2].tolist()
    assert not together[1].any()
    assert together[0].any()


def test_a_graph_that_draws_inside_refuses_what_it_cannot_do() -> None:
    engine = SlotPoolEngine(REPOSITORY / "prosody_step" / "1", slots=2, capacity=32)
    part = Prefill(0, 0, np.zeros((1, 2), np.int64), True, Sampling(repetition_penalty=1.5))
    with pytest.raises(InvalidInput, match="no penalty and no bias"):
        engine.run(Command(0, prefill=part))


def test_commands_out_of_order_are_refused(engine: SlotPoolEngine) -> None:
    engine.run(Command(0))
    with pytest.raises(StageFailed, match="came where 1 was due"):
        engine.run(Command(2))
    engine.run(Command(-1))
    engine.run(Command(1))


@pytest.mark.parametrize(("row", "start", "count"), [(0, 766, 3), (4, 0, 1), (0, 0, 769)])
def test_what_does_not_fit_the_pool_is_refused(
    engine: SlotPoolEngine, row: int, start: int, count: int
) -> None:
    part = Prefill(row, start, np.ones(count, np.int64), is_last=True)
    with pytest.raises(InvalidInput, match="the pool has 4 rows of 768"):
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
