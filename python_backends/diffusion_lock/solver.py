"""Solvers of the flow dx/dt = v(x, t), from noise at time 0 to data at time 1.

The flow is trained with conditional flow matching along optimal-transport paths (Lipman et al.
2023, arXiv:2210.02747), which are nearly straight and therefore need few steps.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
Velocity = Callable[[Rows, NDArray[np.float32]], Rows]
"""(x [B, T, C], t [B]) -> velocity [B, T, C]."""


def euler(velocity: Velocity, x: Rows, steps: int) -> Rows:
    """Explicit Euler: error of first order in 1 / steps; `steps` evaluations."""
    for k in range(steps):
        x = x + velocity(x, _times(x, k / steps)) * np.float32(1 / steps)
    return x


def midpoint(velocity: Velocity, x: Rows, steps: int) -> Rows:
    """Explicit midpoint: error of second order in 1 / steps; 2 * `steps` evaluations."""
    half = np.float32(0.5 / steps)
    for k in range(steps):
        middle = x + velocity(x, _times(x, k / steps)) * half
        x = x + velocity(middle, _times(x, (k + 0.5) / steps)) * np.float32(1 / steps)
    return x


SOLVERS: dict[str, Callable[[Velocity, Rows, int], Rows]] = {"euler": euler, "midpoint": midpoint}


def _times(x: Rows, t: float) -> NDArray[np.float32]:
    return np.full(len(x), t, np.float32)
