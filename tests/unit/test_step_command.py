"""A command keeps its meaning on its way to an engine behind BLS."""

import numpy as np
import pytest

from python_backends.errors import InvalidInput
from python_backends.scheduling.continuous import Move
from python_backends.slot_engine.command import (
    GREEDY,
    Command,
    Decode,
    Prefill,
    Sampling,
    from_inputs,
    to_inputs,
)
from python_backends.slot_engine.sampling import draw

EVERYTHING = Sampling(0.75, 2**63 - 1, 12, 0.5, 1.25, ((49151, -100.0), (0, 0.5)))
BIASED = Sampling(bias=((7, 2.0),))


def command(
    prefill: Sampling | None, *decode: Sampling, is_last: bool = True, width: int = 1
) -> Command:
    """One with a prefill and as many decoding rows as ways to sample are given."""
    shape = (3,) if width == 1 else (3, width)
    part = step = None
    if prefill is not None:
        tokens = np.arange(3 * width).reshape(shape)
        part = Prefill(len(decode), 4, tokens, is_last, prefill)
    if decode:
        tokens = np.arange(len(decode) * width).reshape(-1, *shape[1:])
        step = Decode(tokens, np.arange(len(decode)) + 5, decode)
    return Command(9, (Move(2, 0, 11),), part, step)


def returned(sent: Command, width: int = 1) -> Command:
    return from_inputs(to_inputs(sent), width)


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        (EVERYTHING, ()),
        (None, (EVERYTHING,)),
        (GREEDY, (GREEDY, EVERYTHING, BIASED)),
        (BIASED, (EVERYTHING, GREEDY)),
        (Sampling(1.0, 5), (Sampling(repetition_penalty=2.0), BIASED)),
    ],
)
def test_sampling_arrives_with_the_row_it_is_for(
    prefill: Sampling | None, decode: tuple[Sampling, ...]
) -> None:
    found = returned(command(prefill, *decode))
    assert (found.prefill.sampling if found.prefill else None) == prefill
    assert (found.decode.sampling if found.decode else ()) == decode


@pytest.mark.parametrize("width", [1, 2])
def test_the_rest_of_a_command_arrives(width: int) -> None:
    sent = command(EVERYTHING, GREEDY, BIASED, width=width, is_last=False)
    found = returned(sent, width)
    assert (found.number, found.moves) == (9, (Move(2, 0, 11),))
    assert sent.prefill is not None
    assert found.prefill is not None
    assert (found.prefill.row, found.prefill.start, found.prefill.is_last) == (2, 4, False)
    assert found.prefill.tokens.tolist() == sent.prefill.tokens.tolist()
    assert sent.decode is not None
    assert found.decode is not None
    assert found.decode.tokens.tolist() == sent.decode.tokens.tolist()
    assert found.decode.starts.tolist() == sent.decode.starts.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_any_sampling_arrives_as_the_engine_would_round_it(seed: int) -> None:
    random = np.random.default_rng(seed)

    def real(low: float, high: float) -> float:
        return float(np.float32(random.uniform(low, high)))

    ways = [
        Sampling(
            real(0.1, 2),
            int(random.integers(2**63 - 1)),
            int(random.integers(2, 65)),
            real(0.1, 1),
            real(0.5, 2),
            tuple((int(token), real(-100, 100)) for token in random.choice(49152, seed % 5, False)),
        )
        for _ in range(4)
    ]
    found = returned(command(ways[0], *ways[1:]))
    assert found.prefill is not None
    assert found.decode is not None
    assert [found.prefill.sampling, *found.decode.sampling] == ways


def test_rounding_on_the_way_changes_no_token() -> None:
    """An engine behind BLS draws what one in the loop's own process draws."""
    draw_from = np.random.default_rng(0)
    logits = draw_from.standard_normal((300, 200)).astype(np.float32)
    held = draw_from.integers(0, 200, (300, 8))
    ways = [Sampling(0.7, seed, 30, 0.9, 1.1, ((3, 0.1),)) for seed in range(300)]
    arrived = returned(command(None, *ways)).decode
    assert arrived is not None
    here, there = (
        draw(logits.copy(), how, np.full(300, 8), held, scored=False).tokens.tolist()
        for how in (ways, arrived.sampling)
    )
    assert here == there


def test_greedy_rows_send_nothing_about_sampling() -> None:
    sent = to_inputs(command(GREEDY, Sampling(seed=8), Sampling(1.5, 3, top_k=1)))
    assert not {"SAMPLING", "SEED", "BIAS_AT", "BIAS"} & sent.keys()
    found = from_inputs(sent, 1)
    assert found.decode is not None
    assert found.decode.sampling == (GREEDY, GREEDY)


def test_rows_without_a_bias_send_none() -> None:
    assert not {"BIAS_AT", "BIAS"} & to_inputs(command(None, Sampling(1.0, 5))).keys()


def test_sampling_for_other_rows_than_the_commands_is_refused() -> None:
    inputs = to_inputs(command(None, EVERYTHING, EVERYTHING))
    inputs["SAMPLING"] = inputs["SAMPLING"][:, :1]
    with pytest.raises(InvalidInput, match="SAMPLING has 1 rows, SEED 2; 2 are needed"):
        from_inputs(inputs, 1)
    inputs = to_inputs(command(None, EVERYTHING))
    inputs["BIAS_AT"] = np.array([[(1, 5), (0, 6)]], np.int32)
    with pytest.raises(InvalidInput, match="BIAS_AT"):
        from_inputs(inputs, 1)
