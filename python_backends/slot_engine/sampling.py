"""Drawing the next token of every row from its logits.

In this order: tokens the row holds are made less likely (repetition penalty), the caller's bias is
added, and a row that samples divides by its temperature, keeps its best `top_k`, and of those the
fewest best that hold `top_p` of their probability. Noise depends on seed, position and token alone:
not on the company, and not on the rank, so that two tokens which a rounding makes swap ranks keep
each its own noise.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from python_backends.slot_engine.candidates import Best, best_of
from python_backends.slot_engine.command import Drawn, Sampling

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def gumbel(seeds: Ints, positions: Ints, tokens: Ints) -> NDArray[np.float64]:
    """Standard Gumbel noise [rows, n] of `tokens` [rows, n] or [n]: -log(-log(u)), u a hash.

    Adding it to log-probabilities and taking the argmax samples from them (Gumbel-max trick). The
    hash is SplitMix64 (Steele, Lea and Flood 2014) keyed by SplitMix64 of seed and position.
    """
    key = _mixed(seeds.astype(np.uint64) + _GOLDEN)
    key = _mixed(key + _GOLDEN * (positions.astype(np.uint64) + np.uint64(1)))
    hashed = _mixed(key[:, None] + _GOLDEN * (tokens.astype(np.uint64) + np.uint64(1)))
    uniform = ((hashed >> np.uint64(12)) + 0.5) * 2.0**-52
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def draw(
    logits: Floats,
    sampling: Sequence[Sampling],
    lengths: Ints,
    held: Ints,
    best: Best = best_of,
    *,
    scored: bool,
) -> Drawn:
    """One token a row from `logits` [rows, V], which are changed; -1 where the top is not finite.

    `held` [rows, capacity]: the tokens of each row, of which `lengths` [rows] count; a row's length
    is also the position of what is drawn.
    """
    for row, one in enumerate(sampling):
        reweigh(logits[row], one, held[row, : lengths[row]])
    tokens = logits.argmax(axis=1)
    rows = np.arange(len(tokens))
    healthy = np.isfinite(logits[rows, tokens])
    drawing = [row for row, one in enumerate(sampling) if healthy[row] and not one.is_greedy]
    if drawing:
        values, ids = best(logits if len(drawing) == len(tokens) else logits[drawing])
        how = [sampling[row] for row in drawing]
        tokens[drawing] = choose(values, ids, how, lengths[drawing])
    scores = np.zeros(len(tokens), np.float32)
    if scored:
        scores = logits[rows, tokens] - _log_sum_exp(logits)
    return Drawn(np.where(healthy, tokens, -1)[:, None].astype(np.int64), scores)


def reweigh(logits: Floats, how: Sampling, seen: Ints) -> None:
    """Penalise the `seen` tokens of one row's logits [V] and add its bias, in place.

    The penalty divides positive logits and multiplies negative ones (Keskar et al. 2019, CTRL).
    """
    if how.repetition_penalty != 1:
        values, penalty = logits[seen], np.float32(how.repetition_penalty)
        logits[seen] = np.where(values > 0, values / penalty, values * penalty)
    if how.bias:
        tokens, added = zip(*how.bias, strict=True)
        logits[list(tokens)] += np.array(added, np.float32)


def choose(values: Floats, ids: Ints, how: Sequence[Sampling], positions: Ints) -> Ints:
    """One of each row's candidates, given best first: `values`, `ids` [rows, n] to ids [rows]."""
    temperature, top_k, top_p = (
        np.array(column, np.float32)[:, None]
        for column in zip(*[(one.temperature, one.top_k, one.top_p) for one in how], strict=True)
    )
    scaled = values.astype(np.float64) / temperature
    scaled[np.arange(values.shape[1]) >= top_k] = -np.inf
    scaled[(top_p < 1) & (_before(scaled) >= top_p)] = -np.inf
    noise = gumbel(np.array([one.seed for one in how], np.int64), positions, ids)
    chosen: Ints = ids[np.arange(len(ids)), (scaled + noise).argmax(axis=1)]
    return chosen


def probability(logits: Floats, token: int) -> float:
    """Softmax probability of one token, from logits [V]."""
    return float(np.exp(logits[token] - _log_sum_exp(logits[None])[0]))


def _before(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax probability of all better candidates of the row, for each one."""
    weights = np.exp(scaled - scaled[:, :1])
    shares: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return shares.cumsum(axis=1) - shares


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: every bit of the result depends on every bit given."""
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


def _log_sum_exp(logits: Floats) -> Floats:
    top = logits.max(axis=1, keepdims=True)
    summed: Floats = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return summed
