"""On a device tokens are drawn as NumPy draws them."""

from typing import Any

import numpy as np
import pytest
import torch

from python_backends.slot_engine import device_sampling, sampling
from python_backends.slot_engine.command import GREEDY, Drawn, Sampling
from python_backends.slot_engine.device_sampling import MOST_BIASES, Held

ROWS, VOCABULARY, CAPACITY = 24, 500, 40


def both(
    logits: Any,
    ways: list[Sampling],
    *,
    lengths: Any,
    held: Any,
    plain: bool = False,
    scored: bool = True,
) -> tuple[Drawn, Drawn]:
    """What NumPy draws, and what PyTorch does."""
    numpy = sampling.draw(logits.copy(), ways, lengths, held, scored=scored)
    arrays: dict[str, Any] = {
        name: np.zeros(shape, dtype)
        for name, (shape, dtype) in device_sampling.layout(len(ways)).items()
    }
    for row, how in enumerate(ways):
        device_sampling.tell(arrays, row, how)
    told = {name: torch.from_numpy(array) for name, array in arrays.items()}
    rows = Held(torch.from_numpy(held), torch.from_numpy(lengths))
    tokens, scores = device_sampling.draw(
        torch, torch.from_numpy(logits.copy()), told, rows, plain=plain, scored=scored
    )
    return numpy, Drawn(tokens.numpy()[:, None], scores.numpy())


def world(seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {
        "logits": (3 * draw.standard_normal((ROWS, VOCABULARY))).astype(np.float32),
        "lengths": draw.integers(1, CAPACITY, ROWS),
        "held": draw.integers(0, VOCABULARY, (ROWS, CAPACITY)),
    }


def any_way(draw: np.random.Generator) -> Sampling:
    bias = tuple((int(t), float(draw.normal())) for t in draw.choice(VOCABULARY, 5, replace=False))
    return Sampling(
        float(draw.choice([0.0, 0.0005, 0.4, 1.0, 2.5])),
        int(draw.integers(2**63)),
        int(draw.integers(1, 65)),
        float(draw.choice([0.05, 0.5, 0.95, 1.0])),
        float(draw.choice([0.5, 1.0, 1.3, 2.0])),
        bias if draw.random() < 0.5 else (),
    )


@pytest.mark.parametrize("seed", range(40))
def test_every_way_of_drawing_gives_the_token_that_numpy_gives(seed: int) -> None:
    draw = np.random.default_rng(1000 + seed)
    numpy, device = both(ways=[any_way(draw) for _ in range(ROWS)], **world(seed))
    assert device.tokens.tolist() == numpy.tokens.tolist()
    assert np.allclose(device.scores, numpy.scores, atol=1e-4)


@pytest.mark.parametrize("plain", [True, False])
def test_no_number_is_looked_at_by_the_host(plain: bool) -> None:
    """Tensors without numbers are enough: nothing would wait for a GPU, nor hinder a capture."""
    arrays = device_sampling.layout(ROWS)
    how = {
        name: torch.zeros(shape, dtype=getattr(torch, kind), device="meta")
        for name, (shape, kind) in arrays.items()
    }
    held = Held(
        torch.zeros((ROWS, CAPACITY), dtype=torch.int64, device="meta"),
        torch.zeros(ROWS, dtype=torch.int64, device="meta"),
    )
    logits = torch.zeros((ROWS, VOCABULARY), device="meta")
    tokens, scores = device_sampling.draw(torch, logits, how, held, plain=plain, scored=True)
    assert (tokens.shape, tokens.dtype) == ((ROWS,), torch.int64)
    assert scores.shape == (ROWS,)


def test_greedy_rows_need_no_candidates() -> None:
    numpy, device = both(ways=[GREEDY] * ROWS, plain=True, **world(3))
    assert device.tokens.tolist() == numpy.tokens.tolist()


def test_equal_candidates_are_ranked_by_id() -> None:
    """So that top_p cuts the same ones off."""
    given = world(0) | {"logits": np.round(world(0)["logits"])}
    ways = [Sampling(1.0, seed, 20, 0.6) for seed in range(ROWS)]
    numpy, device = both(ways=ways, **given)
    assert device.tokens.tolist() == numpy.tokens.tolist()


@pytest.mark.parametrize("how", [GREEDY, Sampling(1.0, 3, 40, 0.9, 1.3)])
def test_rows_that_are_not_finite_are_marked_and_the_others_drawn(how: Sampling) -> None:
    given = world(5)
    logits = given["logits"]
    logits[1, 50], logits[2, :], logits[3, 10] = np.nan, -np.inf, np.inf
    numpy, device = both(ways=[how] * ROWS, scored=False, **given)
    assert device.tokens.tolist() == numpy.tokens.tolist()
    assert device.tokens[1:4, 0].tolist() == [-1, -1, -1]


def test_a_vocabulary_may_be_smaller_than_the_candidates() -> None:
    given = world(1)
    given |= {"logits": given["logits"][:, :9].copy(), "held": given["held"] % 9}
    ways = [Sampling(1.0, seed) for seed in range(ROWS)]
    numpy, device = both(ways=ways, **given)
    assert device.tokens.tolist() == numpy.tokens.tolist()


def test_noise_is_that_of_numpy() -> None:
    draw = np.random.default_rng(0)
    seeds = np.concatenate([draw.integers(2**63, size=97), [0, 1, 2**63 - 1]])
    places = draw.integers(0, 2000, 100)
    expected = sampling.gumbel(seeds, places, np.arange(300))
    found = device_sampling.gumbel(
        torch, torch.from_numpy(seeds), torch.from_numpy(places), torch.arange(300)
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-13, atol=1e-13)


def test_noise_for_graphs_that_draw_inside_is_scaled_by_the_temperature() -> None:
    how = {"seed": torch.tensor([4, 5]), "temperature": torch.tensor([0.0, 0.5]).double()}
    found = device_sampling.scaled_noise(torch, how, torch.tensor([3, 9]), torch.arange(7))
    expected = 0.5 * sampling.gumbel(np.array([5]), np.array([9]), np.arange(7))[0]
    assert not found[0].any()
    np.testing.assert_allclose(found[1].numpy(), expected, rtol=1e-13)


def test_more_biases_than_there_is_room_for_are_refused() -> None:
    arrays = {name: np.zeros(s, d) for name, (s, d) in device_sampling.layout(1).items()}
    how = Sampling(bias=tuple((token, 1.0) for token in range(MOST_BIASES + 1)))
    with pytest.raises(ValueError, match="65 biases; at most 64 are accepted"):
        device_sampling.tell(arrays, 0, how)
