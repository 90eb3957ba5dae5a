"""Solvers of the flow dx/dt = v(x, t), from noise at time 0 to data at time 1.

The flow is trained with conditional flow matching along optimal-transport paths (Lipman et al.
2023, arXiv:2210.02747), which are nearly straight and therefore need few steps.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from python_backends.errors import InvalidInput

Rows = NDArray[np.float32]
Velocity = Callable[[Rows, NDArray[np.float32]], Rows]
"""(x [B, T, C], t [B]) -> velocity [B, T, C]."""

Path = Generator[tuple[Rows, float], Rows, Rows]
"""Asks for the velocity at (x, t), is sent it, and returns x at time 1. It may rest between two
evaluations for as long as it likes, so that rows at different times can share them."""


def euler(x: Rows, steps: int) -> Path:
    """Explicit Euler: error of first order in 1 / steps; `steps` evaluations."""
    for k in range(steps):
        x = x + (yield x, k / steps) * np.float32(1 / steps)
    return x


def midpoint(x: Rows, steps: int) -> Path:
    """Explicit midpoint: error of second order in 1 / steps; 2 * `steps` evaluations."""
    half = np.float32(0.5 / steps)
    for k in range(steps):
        middle = x + (yield x, k / steps) * half
        x = x + (yield middle, (k + 0.5) / steps) * np.float32(1 / steps)
    return x


@dataclass(frozen=True)
class Solver:
    """A way from noise to data."""

    path: Callable[[Rows, int], Path]
    """(x at time 0 [..., T, C], steps) -> its path."""

    evaluations: int
    """Of the velocity, a step."""

    def __call__(self, velocity: Velocity, x: Rows, steps: int) -> Rows:
        """All rows of x [B, T, C] together, from time 0 to 1."""
        path = self.path(x, steps)
        at, t = next(path)
        while True:
            try:
                at, t = path.send(velocity(at, np.full(len(at), t, np.float32)))
            except StopIteration as end:
                arrived: Rows = end.value
                return arrived


SHORTCUT = "shortcut"
SOLVERS = {"euler": Solver(euler, 1), "midpoint": Solver(midpoint, 2), SHORTCUT: Solver(euler, 1)}
"""`shortcut` is Euler on a decoder that is told how far it steps, and steps there at once."""

SHORTCUT_STEPS = (1, 2, 4)
"""Numbers of steps that the decoder has learnt to get along with."""

STRIDES = 1 + len(SHORTCUT_STEPS)
"""Strides the decoder knows."""


def chosen(asked: str, default: str, steps: int) -> str:
    """The solver a request gets. A stage that takes shortcuts by default goes the long way for a
    number of steps that it has learnt none for."""
    if asked or default != SHORTCUT or steps in SHORTCUT_STEPS:
        return asked or default
    return "euler"


def stride(solver: str, steps: int) -> int:
    """What the decoder is told of its steps: 0 asks for the velocity itself, else 1 + the place of
    `steps` in SHORTCUT_STEPS. Raises InvalidInput for a number of steps it has not learnt."""
    if solver != SHORTCUT:
        return 0
    if steps not in SHORTCUT_STEPS:
        known = ", ".join(map(str, SHORTCUT_STEPS))
        raise InvalidInput(f"{steps} steps with solver 'shortcut'; {known} are accepted")
    return 1 + SHORTCUT_STEPS.index(steps)
