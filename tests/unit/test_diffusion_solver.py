"""Solvers against equations whose solution is known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.diffusion_lock.solver import (
    SHORTCUT,
    SHORTCUT_STEPS,
    SOLVERS,
    STRIDES,
    chosen,
    stride,
)
from python_backends.errors import InvalidInput

START = np.ones((2, 3, 4), np.float32)


def growth(x: NDArray[np.float32], t: NDArray[np.float32]) -> NDArray[np.float32]:
    """dx/dt = x (1 + t), so x(1) = x(0) exp(1.5)."""
    return x * (1 + t)[:, None, None]


def error_of(solver: str, steps: int) -> float:
    found = SOLVERS[solver](growth, START, steps)
    return float(np.abs(found - np.exp(1.5)).max())


@pytest.mark.parametrize(("solver", "order"), [("euler", 1), ("midpoint", 2)])
def test_halving_the_step_shrinks_the_error_by_the_order(solver: str, order: int) -> None:
    ratios = [error_of(solver, n) / error_of(solver, 2 * n) for n in (8, 16)]
    assert ratios == pytest.approx([2**order] * 2, rel=0.2)


@pytest.mark.parametrize(("solver", "evaluations"), [("euler", 4), ("midpoint", 8)])
def test_evaluations_and_times_of_four_steps(solver: str, evaluations: int) -> None:
    seen: list[list[float]] = []

    def velocity(x: NDArray[np.float32], t: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.append(t.tolist())
        assert x.dtype == t.dtype == np.float32
        return np.zeros_like(x)

    result = SOLVERS[solver](velocity, START, 4)
    assert (result == START).all()
    assert seen == [[k / evaluations] * 2 for k in range(evaluations)]


def test_a_straight_path_is_exact_in_one_step() -> None:
    for solve in SOLVERS.values():
        found = solve(lambda x, t: np.full_like(x, 2.5), START, 1)
        assert (found == np.float32(3.5)).all()


def test_only_shortcuts_are_told_how_far_they_step() -> None:
    assert {stride(solver, steps) for solver in ("euler", "midpoint") for steps in (1, 4, 7)} == {0}
    told = [stride(SHORTCUT, steps) for steps in SHORTCUT_STEPS]
    assert [0, *told] == list(range(STRIDES))


@pytest.mark.parametrize("steps", [3, 5, 8, 16])
def test_a_shortcut_that_was_not_learnt_is_refused(steps: int) -> None:
    with pytest.raises(InvalidInput, match="1, 2, 4 are accepted"):
        stride(SHORTCUT, steps)


def test_a_stage_takes_shortcuts_where_it_can_and_what_a_caller_names_always() -> None:
    assert [chosen("", SHORTCUT, steps) for steps in (1, 2, 3, 4, 8)] == [
        SHORTCUT,
        SHORTCUT,
        "euler",
        SHORTCUT,
        "euler",
    ]
    assert chosen("midpoint", SHORTCUT, 4) == "midpoint"
    assert chosen(SHORTCUT, "euler", 3) == SHORTCUT
    assert chosen("", "midpoint", 3) == "midpoint"
