"""`sampling.draw` on a device: the same order, the same noise, and nothing that waits for the host.

All shapes are fixed and nothing branches on a number, so that a CUDA graph may hold it. `torch` is
a parameter, since it is imported only where an engine runs on a device. Logarithms may differ from
NumPy's in the last bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from python_backends.slot_engine.candidates import CANDIDATES
from python_backends.slot_engine.command import GREEDY_BELOW, Sampling
from python_backends.tensorrt.runtime import Shape

Tensor = Any

MOST_BIASES = 64
"""Of one row: as many as a caller may name."""


def _signed(bits: int) -> int:
    """A 64-bit pattern as PyTorch, which has no such unsigned arithmetic, takes it."""
    return bits - 2**64 if bits >= 2**63 else bits


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST, _SECOND = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def layout(rows: int) -> dict[str, tuple[Shape, str]]:
    """Arrays that say how each of `rows` rows is drawn: see `tell`."""
    return {
        "seed": ((rows,), "int64"),
        "temperature": ((rows,), "float64"),
        "top_k": ((rows,), "int64"),
        "top_p": ((rows,), "float32"),
        "penalty": ((rows,), "float32"),
        "bias_at": ((rows, MOST_BIASES), "int64"),
        "bias": ((rows, MOST_BIASES), "float32"),
    }


def tell(arrays: Mapping[str, Any], row: int, how: Sampling) -> None:
    """Write one row of arrays of `layout`. ValueError for more biases than there is room for."""
    if len(how.bias) > MOST_BIASES:
        raise ValueError(f"{len(how.bias)} biases; at most {MOST_BIASES} are accepted")
    arrays["seed"][row] = how.seed
    arrays["temperature"][row] = how.temperature
    arrays["top_k"][row] = how.top_k
    arrays["top_p"][row] = how.top_p
    arrays["penalty"][row] = how.repetition_penalty
    arrays["bias_at"][row], arrays["bias"][row] = 0, 0
    for place, (token, added) in enumerate(how.bias):
        arrays["bias_at"][row, place], arrays["bias"][row, place] = token, added


@dataclass(frozen=True)
class Held:
    """What rows hold: `tokens` [rows, capacity], of which `lengths` [rows] count."""

    tokens: Tensor
    lengths: Tensor


def draw(
    torch: Any, logits: Tensor, how: Mapping[str, Tensor], held: Held, *, plain: bool, scored: bool
) -> tuple[Tensor, Tensor]:
    """Tokens [rows] and their scores [rows] from `logits` [rows, V]; see sampling.draw.

    `plain`: all rows are greedy, without penalty or bias; nothing else is computed then.
    """
    if not plain:
        logits = _reweighed(torch, logits, how, held)
    tokens = logits.argmax(1)
    healthy = torch.isfinite(_at(logits, tokens))
    if not plain:
        greedy = (how["temperature"] < GREEDY_BELOW) | (how["top_k"] == 1)
        tokens = torch.where(greedy, tokens, _chosen(torch, logits, how, held.lengths))
    if scored:
        scores = _at(logits, tokens) - torch.logsumexp(logits, 1)
    else:
        scores = torch.zeros_like(logits[:, 0])
    return torch.where(healthy, tokens, -1), scores


def gumbel(torch: Any, seeds: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise [rows, n] of `tokens` [rows, n] or [n]; see sampling.gumbel."""
    key = _mixed(seeds + _GOLDEN)
    key = _mixed(key + _GOLDEN * (positions + 1))
    hashed = _mixed(key[:, None] + _GOLDEN * (tokens + 1))
    uniform = (_shifted(hashed, 12).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniform))


def scaled_noise(
    torch: Any, how: Mapping[str, Tensor], positions: Tensor, places: Tensor
) -> Tensor:
    """Noise [rows, n] times each row's temperature, for graphs that draw inside; 0 is greedy."""
    temperature = how["temperature"]
    scale = torch.where(temperature < GREEDY_BELOW, 0.0, temperature)
    return scale[:, None] * gumbel(torch, how["seed"], positions, places)


def _reweighed(torch: Any, logits: Tensor, how: Mapping[str, Tensor], held: Held) -> Tensor:
    """Seen tokens penalised and biases added; see sampling.reweigh."""
    rows, vocabulary = logits.shape
    places = torch.arange(held.tokens.shape[1], device=logits.device)
    # Tokens beyond a row's length are marked in a column that is cut off.
    marked = torch.where(places < held.lengths[:, None], held.tokens, vocabulary)
    seen = torch.zeros((rows, vocabulary + 1), dtype=torch.bool, device=logits.device)
    seen = seen.scatter_(1, marked, True)[:, :vocabulary]
    penalty = how["penalty"][:, None]
    harsher = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, harsher, logits).scatter_add_(1, how["bias_at"], how["bias"])


def _chosen(torch: Any, logits: Tensor, how: Mapping[str, Tensor], positions: Tensor) -> Tensor:
    """One of each row's best candidates; see sampling.choose."""
    values, ids = _best(torch, logits)
    scaled = values.double() / how["temperature"].float()[:, None]
    ranks = torch.arange(values.shape[1], device=logits.device)
    scaled = scaled.masked_fill(ranks >= how["top_k"][:, None], -torch.inf)
    top_p = how["top_p"][:, None]
    scaled = scaled.masked_fill((top_p < 1) & (_before(torch, scaled) >= top_p), -torch.inf)
    noise = gumbel(torch, how["seed"], positions, ids)
    return _at(ids, (scaled + noise).argmax(1))


def _best(torch: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Candidates, the best first, equal ones by id."""
    ids = logits.topk(min(CANDIDATES, logits.shape[1]), sorted=False).indices.sort(1).values
    values, order = logits.gather(1, ids).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, order)


def _before(torch: Any, scaled: Tensor) -> Tensor:
    """Softmax probability of all better candidates of the row, for each one."""
    shares = torch.softmax(scaled, 1)
    return shares.cumsum(1) - shares


def _at(values: Tensor, places: Tensor) -> Tensor:
    """One value of each row."""
    return values.gather(1, places[:, None])[:, 0]


def _mixed(bits: Tensor) -> Tensor:
    """SplitMix64's finaliser, as in sampling.py; products wrap around in int64 as well."""
    bits = (bits ^ _shifted(bits, 30)) * _FIRST
    bits = (bits ^ _shifted(bits, 27)) * _SECOND
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, count: int) -> Tensor:
    """A logical shift to the right: zeros come in where PyTorch lets the sign in."""
    return (bits >> count) & ((1 << (64 - count)) - 1)
