"""Optimization profiles: which shapes an engine is built for, from a model's config.pbtxt.

Everything here is pure: shapes of a graph's inputs and numbers of a config in, profiles out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from build.errors import EngineRefused
from python_backends.tensorrt.record import rebuild

Shape = tuple[int, ...]
OpenShape = tuple[int | str, ...]
"""A graph's own: dimensions that vary are names."""


@dataclass(frozen=True)
class Range:
    """What a dimension may be, and what an engine is tuned for."""

    least: int
    usual: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.usual <= self.most:
            raise ValueError(f"{self}: 1 <= least <= usual <= most is accepted")

    @classmethod
    def only(cls, size: int) -> "Range":
        """Of a dimension that is always the same."""
        return cls(size, size, size)


@dataclass(frozen=True)
class Bounds:
    """The shapes one input may have: TensorRT's min, opt and max."""

    least: Shape
    usual: Shape
    most: Shape


Profile = Mapping[str, Bounds]
"""Input name to its bounds."""


def profile(inputs: Mapping[str, OpenShape], lengths: Mapping[str, Range]) -> Profile:
    """The profile of a graph whose open dimensions lie in `lengths`.

    Raises EngineRefused for a dimension that nothing is known of.
    """
    return {name: _bounds(name, shape, lengths) for name, shape in inputs.items()}


def batch_range(config: Any) -> Range:
    """Rows of a batch of a native model: tuned for the smallest size that its config prefers."""
    batching = config.dynamic_batching or config.sequence_batching.oldest
    preferred = list(batching.preferred_batch_size)
    return Range(1, min(preferred, default=config.max_batch_size), config.max_batch_size)


def check(config: Any, found: Profile) -> None:
    """Raise EngineRefused unless every batch and every length that the config promises is inside.

    Triton refuses an engine whose largest batch is below max_batch_size when it loads it; a larger
    one only wastes device memory. Both mean that one of the two was changed without the other.
    """
    wrong = []
    for tensor in config.input:
        bounds = found.get(tensor.name)
        if bounds is None:
            wrong.append(f"{tensor.name} has no bounds")
            continue
        if (bounds.least[0], bounds.most[0]) != (1, config.max_batch_size):
            wrong.append(
                f"{tensor.name} takes {bounds.least[0]} to {bounds.most[0]} rows,"
                f" config.pbtxt says 1 to {config.max_batch_size}"
            )
        if not _inside(tuple(tensor.dims), bounds):
            wrong.append(f"{tensor.name} is {list(tensor.dims)} in config.pbtxt, here {bounds}")
    if wrong:
        raise EngineRefused(
            f"{config.name}: profile and config.pbtxt disagree: {'; '.join(wrong)}."
            f" Rebuild: {rebuild(config.name)}"
        )


def told(profiles: list[Profile]) -> list[dict[str, list[list[int]]]]:
    """Profiles as JSON: for each, input to [min, opt, max]."""
    return [
        {name: [list(b.least), list(b.usual), list(b.most)] for name, b in sorted(one.items())}
        for one in profiles
    ]


def _inside(dims: Shape, bounds: Bounds) -> bool:
    """Whether dimensions that the config fixes are fixed here, and to the same size."""
    if len(dims) + 1 != len(bounds.most):
        return False
    shapes = zip(dims, bounds.least[1:], bounds.most[1:], strict=True)
    return all(dim == -1 or dim == low == high for dim, low, high in shapes)


def _bounds(name: str, shape: OpenShape, lengths: Mapping[str, Range]) -> Bounds:
    ranges = [_range(name, dim, lengths) for dim in shape]
    return Bounds(
        tuple(one.least for one in ranges),
        tuple(one.usual for one in ranges),
        tuple(one.most for one in ranges),
    )


def _range(name: str, dim: int | str, lengths: Mapping[str, Range]) -> Range:
    if isinstance(dim, int):
        return Range.only(dim)
    if dim not in lengths:
        known = ", ".join(sorted(lengths)) or "none"
        raise EngineRefused(f"{name}: no range is known for its dimension {dim!r}; known: {known}")
    return lengths[dim]
