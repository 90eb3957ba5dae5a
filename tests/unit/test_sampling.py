"""Tokens are drawn as the options say, and by nobody's company."""

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.bridge.options import Options
from python_backends.errors import InvalidInput
from python_backends.slot_engine.candidates import CANDIDATES, best_of
from python_backends.slot_engine.command import GREEDY, Sampling, Tokens
from python_backends.slot_engine.sampling import draw, gumbel, reweigh

SEEDS = 4000
Logits = NDArray[np.float32]


def drawn(
    logits: Logits,
    sampling: list[Sampling],
    lengths: list[int] | None = None,
    held: Tokens | None = None,
) -> list[int]:
    """Tokens of the rows, whose logits are left alone."""
    places = np.array(lengths if lengths is not None else [7] * len(logits), np.int64)
    tokens = np.zeros((len(logits), 16), np.int64) if held is None else held
    found = draw(logits.copy(), sampling, places, tokens, scored=False)
    return [int(token) for token in found.tokens[:, 0]]


def shares(logits: Logits, how: Sampling) -> NDArray[np.float64]:
    """How often each token is drawn from logits [V], over many seeds."""
    sampling = [
        Sampling(how.temperature, seed, how.top_k, how.top_p, how.repetition_penalty, how.bias)
        for seed in range(SEEDS)
    ]
    tokens = drawn(np.tile(logits, (SEEDS, 1)), sampling)
    return np.bincount(tokens, minlength=len(logits)) / SEEDS


def softmax(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    weights = np.exp(scores.astype(np.float64) - scores.max())
    return np.asarray(weights / weights.sum(), np.float64)


def some_logits(rows: int, vocabulary: int, seed: int = 0) -> Logits:
    draw = np.random.default_rng(seed)
    return (3 * draw.standard_normal((rows, vocabulary))).astype(np.float32)


@pytest.mark.parametrize("seed", range(10))
def test_a_greedy_row_takes_the_argmax(seed: int) -> None:
    logits = some_logits(8, 500, seed)
    ways = [GREEDY, Sampling(0.0009, seed=seed), Sampling(1.5, seed, top_k=1)]
    for how in ways:
        assert drawn(logits, [how] * 8) == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("seed", range(10))
def test_so_little_of_the_probability_that_one_token_holds_it_is_greedy(seed: int) -> None:
    logits = some_logits(8, 500, seed)
    how = Sampling(1.0, seed, top_p=1e-6)
    assert drawn(logits, [how] * 8) == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_as_frequent_as_softmax_says(temperature: float) -> None:
    """The tolerance is four standard deviations of the most uncertain share."""
    logits = some_logits(1, 20, seed=3)[0]
    found = shares(logits, Sampling(temperature))
    assert np.abs(found - softmax(logits / temperature)).max() < 4 * 0.5 / SEEDS**0.5


def test_top_k_draws_among_so_many_with_their_own_odds() -> None:
    logits = np.log(np.arange(1, 13, dtype=np.float32))
    found = shares(logits, Sampling(1.0, top_k=3))
    assert found[:9].sum() == 0
    assert np.abs(found[9:] - np.array([10, 11, 12]) / 33).max() < 0.032


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.39, [4]), (0.41, [4, 3]), (0.71, [4, 3, 2]), (1.0, [4, 3, 2, 1, 0])]
)
def test_top_p_keeps_the_fewest_that_hold_that_share(top_p: float, kept: list[int]) -> None:
    """Shares are 5, 10, 15, 30 and 40 %: the token that passes the mark is the last one kept."""
    logits = np.log(np.array([5, 10, 15, 30, 40], np.float32))
    found = shares(logits, Sampling(1.0, top_p=top_p))
    assert set(np.flatnonzero(found)) == set(kept)


def test_top_p_counts_shares_of_the_top_k_alone() -> None:
    """Of 40 and 30, the better one holds 57 %: half is reached without the other."""
    logits = np.log(np.array([5, 10, 15, 30, 40], np.float32))
    assert set(np.flatnonzero(shares(logits, Sampling(1.0, top_k=2, top_p=0.5)))) == {4}
    assert set(np.flatnonzero(shares(logits, Sampling(1.0, top_p=0.5)))) == {3, 4}


def test_a_token_does_not_depend_on_the_company() -> None:
    logits = some_logits(12, 300, seed=1)
    draw = np.random.default_rng(2)
    ways = [GREEDY] * 3 + [
        Sampling(
            float(draw.uniform(0.3, 2)),
            int(draw.integers(2**62)),
            int(draw.integers(1, 65)),
            float(draw.uniform(0.3, 1)),
            float(draw.uniform(0.5, 2)),
            ((int(draw.integers(300)), 5.0),),
        )
        for _ in range(9)
    ]
    lengths = draw.integers(1, 16, 12).tolist()
    held = draw.integers(0, 300, (12, 16))
    together = drawn(logits, ways, lengths, held)
    for row in range(12):
        one = slice(row, row + 1)
        assert drawn(logits[one], ways[one], lengths[one], held[one]) == together[one]
    order = draw.permutation(12)
    shuffled = drawn(
        logits[order], [ways[row] for row in order], [lengths[row] for row in order], held[order]
    )
    assert shuffled == [together[row] for row in order]


def test_noise_belongs_to_seed_position_and_token_alone() -> None:
    seeds, places = np.array([3, 3, 4, 2**63 - 1]), np.array([5, 6, 5, 511])
    noise = gumbel(seeds, places, np.arange(200))
    assert len(np.unique(noise)) == noise.size
    picked = gumbel(seeds[1:2], places[1:2], np.array([[150, 7]]))
    assert picked[0].tolist() == [noise[1, 150], noise[1, 7]]


def test_noise_is_standard_gumbel() -> None:
    """Mean 0.5772, variance pi^2/6, and no trace of the seed, the position or the token in it."""
    seeds, places = np.repeat(np.arange(50), 20), np.tile(np.arange(20), 50)
    noise = gumbel(seeds, places, np.arange(200))
    assert np.isfinite(noise).all()
    assert abs(noise.mean() - 0.5772) < 0.02
    assert abs(noise.var() - np.pi**2 / 6) < 0.03
    by_seed, by_place = noise.reshape(50, -1), noise.reshape(50, 20, 200).transpose(1, 0, 2)
    for means, of in ((by_seed.mean(1), 4000), (by_place.mean((1, 2)), 10_000)):
        assert np.abs(means - 0.5772).max() < 5 * 1.283 / of**0.5
    assert np.abs(noise.mean(0) - 0.5772).max() < 5 * 1.283 / 1000**0.5
    flat = noise.reshape(-1) - noise.mean()
    for lag in (1, 200, 200 * 20):
        assert abs(np.mean(flat[lag:] * flat[:-lag])) < 5 * noise.var() / len(flat) ** 0.5


def test_tokens_that_swap_ranks_by_a_rounding_keep_their_noise() -> None:
    """With noise by rank, about half of these draws would give another token."""
    logits = np.array([2, 2, 1, 0], np.float32)
    nudged = logits + np.array([0, 1e-6, 0, 0], np.float32)
    assert (best_of(logits[None])[1] != best_of(nudged[None])[1]).any()
    ways = [Sampling(1.0, seed) for seed in range(500)]
    assert drawn(np.tile(logits, (500, 1)), ways) == drawn(np.tile(nudged, (500, 1)), ways)


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_the_penalty_divides_positive_logits_and_multiplies_negative_ones(penalty: float) -> None:
    logits = np.array([3, -3, 0.5, -0.5, 0], np.float32)
    changed = logits.copy()
    reweigh(changed, Sampling(repetition_penalty=penalty), np.array([0, 1, 4, 0, 0]))
    expected = [3 / penalty, -3 * penalty, 0.5, -0.5, 0]
    assert changed.tolist() == pytest.approx(expected, rel=1e-6)


def test_only_tokens_that_the_row_holds_are_penalised() -> None:
    """Token 2 stands at position 2: a row of length 2 does not hold it, a former user did."""
    logits = np.array([[1.0, 2.0, 3.0]], np.float32)
    held = np.array([[0, 0, 2, 1]])
    harsh = Sampling(repetition_penalty=2.0)
    assert drawn(logits, [harsh], [2], held) == [2]
    assert drawn(logits, [harsh], [3], held) == [1]


def test_a_bias_is_added_after_the_penalty() -> None:
    """The other way round the biased token would be at (1 + 3) / 2 = 2, and lose."""
    logits = np.array([[1.0, 3.0]], np.float32)
    how = Sampling(repetition_penalty=2.0, bias=((0, 3.0),))
    assert drawn(logits, [how], [1], np.array([[0]])) == [0]


def test_a_bias_forces_and_forbids_tokens() -> None:
    logits = some_logits(1, 400, seed=5)
    least, most = int(logits.argmin()), int(logits.argmax())
    assert drawn(logits, [Sampling(bias=((least, 100.0),))]) == [least]
    forbidden = [Sampling(1.0, seed, bias=((most, -100.0),)) for seed in range(200)]
    assert most not in drawn(np.tile(logits, (200, 1)), forbidden)


@pytest.mark.parametrize("how", [GREEDY, Sampling(1.0, 3), Sampling(1.0, 3, 40, 0.9, 1.3)])
def test_rows_that_are_not_finite_are_marked_and_the_others_drawn(how: Sampling) -> None:
    logits = some_logits(4, 100)
    alone = drawn(logits, [how] * 4)
    logits[1, 50], logits[2, :], logits[3, 10] = np.nan, -np.inf, np.inf
    assert drawn(logits, [how] * 4) == [alone[0], -1, -1, -1]


def test_suppressed_tokens_are_never_drawn() -> None:
    logits = some_logits(1, 100)
    logits[0, 3:] = -np.inf
    ways = [Sampling(2.0, seed) for seed in range(300)]
    assert set(drawn(np.tile(logits, (300, 1)), ways)) == {0, 1, 2}


def test_a_vocabulary_may_be_smaller_than_the_candidates() -> None:
    assert set(np.flatnonzero(shares(np.zeros(3, np.float32), Sampling(1.0)))) == {0, 1, 2}


def test_scores_are_log_probabilities() -> None:
    logits = some_logits(3, 50)
    places, held = np.ones(3, np.int64), np.zeros((3, 4), np.int64)
    found = draw(logits.copy(), [GREEDY] * 3, places, held, scored=True)
    for row in range(3):
        assert np.exp(found.scores[row]) == pytest.approx(softmax(logits[row]).max(), rel=1e-5)


def test_what_a_caller_may_ask_for_is_what_the_candidates_allow() -> None:
    assert Options.parse({"top_k": CANDIDATES}).top_k == CANDIDATES
    with pytest.raises(InvalidInput, match="top_k"):
        Options.parse({"top_k": CANDIDATES + 1})
