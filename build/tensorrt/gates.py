"""Which tensors of a half-precision graph must be fp32: decided from what was measured of each.

Pure; `build/tensorrt/half.py` rewrites the graph and measures it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

HALF_MAX = 65504.0


@dataclass(frozen=True)
class Limits:
    """What is still accepted."""

    headroom: float = 4.0
    """Values of our examples stay below the largest half by this factor: others may be louder."""

    tensor_error: float = 0.05
    """Of any tensor, relative to its largest value."""

    output_error: float = 0.02
    """The same of a graph's output."""


@dataclass(frozen=True)
class Reading:
    """What a tensor is in half precision, beside what it is in fp32."""

    tensor: str
    finite: bool
    peak: float
    """Largest absolute value in fp32."""

    error: float
    """Largest difference over `peak`."""

    error_before: float = 0.0
    """The worst error of what it was computed from: of a later tensor the same error is no news."""


def in_full(readings: Iterable[Reading], limits: Limits | None = None) -> list[str]:
    """Tensors to keep in fp32: those that overflow, are near to it, or bring an error in."""
    limits = limits or Limits()
    return [one.tensor for one in readings if _spoils(one, limits)]


def complaints(outputs: Iterable[Reading], limits: Limits | None = None) -> list[str]:
    """What is wrong with the outputs of a graph; nothing: it may be used."""
    limits = limits or Limits()
    return [
        f"{one.tensor}: {'error ' + format(one.error, '.3g') if one.finite else 'not finite'}"
        for one in outputs
        if not one.finite or not one.error <= limits.output_error
    ]


def _spoils(reading: Reading, limits: Limits) -> bool:
    near = reading.peak > HALF_MAX / limits.headroom
    worse = not reading.finite or reading.error > limits.tensor_error
    return near or (worse and reading.error_before <= limits.tensor_error)
