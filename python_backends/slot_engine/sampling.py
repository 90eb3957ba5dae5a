"""Drawing the next token from logits. Noise depends on the seed and the position alone."""

import numpy as np
from numpy.typing import NDArray

from python_backends.slot_engine.command import Drawn, Sampling

GREEDY_BELOW = 1e-3
TOP_K = 40


def gumbel(seed: int, position: int, count: int) -> NDArray[np.float32]:
    """Standard Gumbel noise [count]: -log(-log(u)), u from Philox keyed by (seed, position).

    Adding it to log-probabilities and taking the argmax samples from them (Gumbel-max trick).
    """
    stream = np.random.Generator(np.random.Philox(key=[seed & (2**63 - 1), position]))
    uniform = stream.random(count, dtype=np.float64)
    noise: NDArray[np.float32] = -np.log(-np.log(np.clip(uniform, 1e-12, 1 - 1e-12)))
    return noise.astype(np.float32)


def draw(
    logits: NDArray[np.float32],
    sampling: tuple[Sampling, ...],
    positions: NDArray[np.int64],
    *,
    scored: bool,
) -> Drawn:
    """One token a row from `logits` [rows, V]; -1 where the best logit is not finite.

    Greedy rows take the argmax; others the argmax of top-40 logits / temperature + Gumbel noise.
    """
    tokens = logits.argmax(axis=1)
    rows = np.arange(len(tokens))
    healthy = np.isfinite(logits[rows, tokens])
    for row, one in enumerate(sampling):
        if healthy[row] and one.temperature >= GREEDY_BELOW:
            tokens[row] = _sampled(logits[row], one, int(positions[row]))
    scores = np.zeros(len(tokens), np.float32)
    if scored:
        scores = logits[rows, tokens] - _log_sum_exp(logits)
    return Drawn(np.where(healthy, tokens, -1)[:, None].astype(np.int64), scores)


def probability(logits: NDArray[np.float32], token: int) -> float:
    """Softmax probability of one token, from logits [V]."""
    return float(np.exp(logits[token] - _log_sum_exp(logits[None])[0]))


def _sampled(logits: NDArray[np.float32], sampling: Sampling, position: int) -> int:
    best = np.argpartition(logits, -TOP_K)[-TOP_K:]
    best = best[np.lexsort((best, -logits[best]))]
    noise = gumbel(sampling.seed, position, TOP_K)
    return int(best[np.argmax(logits[best] / sampling.temperature + noise)])


def _log_sum_exp(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    top = logits.max(axis=1, keepdims=True)
    summed: NDArray[np.float32] = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return summed
