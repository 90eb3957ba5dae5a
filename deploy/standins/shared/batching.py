"""Requests to rows of a batch and back, and the state of sequences between their requests."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
Answer = dict[str, NDArray[Any]] | Exception
Run = Callable[[Arrays], dict[str, NDArray[Any]]]


def run_together(run: Run, feeds: Sequence[Arrays]) -> list[Answer]:
    """One answer for each request's inputs (all batch-leading), by as few calls as shapes allow.

    Requests whose shapes agree beyond the batch dim share a call. When a call fails, its requests
    run alone, so that only the bad one fails.
    """
    answers: list[Answer] = [RuntimeError("not run")] * len(feeds)
    for members in _by_shape(feeds):
        outcomes = _run_group(run, [feeds[member] for member in members])
        for member, outcome in zip(members, outcomes, strict=True):
            answers[member] = outcome
    return answers


def run_alone(run: Run, feeds: Sequence[Arrays]) -> list[Answer]:
    """One call for each request: for graphs without a batch dim."""
    return [_attempt(run, feed) for feed in feeds]


def _by_shape(feeds: Sequence[Arrays]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for index, feed in enumerate(feeds):
        key = tuple((name, feed[name].shape[1:]) for name in sorted(feed))
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _run_group(run: Run, feeds: list[Arrays]) -> list[Answer]:
    if len(feeds) == 1:
        return [_attempt(run, feeds[0])]
    together = _attempt(
        run, {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
    )
    if isinstance(together, Exception):
        return [_attempt(run, feed) for feed in feeds]
    rows = [next(iter(feed.values())).shape[0] for feed in feeds]
    ends = np.cumsum(rows)
    return [
        {name: values[end - count : end] for name, values in together.items()}
        for count, end in zip(rows, ends, strict=True)
    ]


def _attempt(run: Run, feed: Arrays) -> Answer:
    try:
        return run(feed)
    except Exception as fault:
        return fault


class SequenceStates:
    """State tensors by correlation id: zero at the start, kept between requests, dropped after.

    At most `limit` sequences: the server drops idle ones without telling the model, so the one
    that was used longest ago makes room.
    """

    def __init__(self, initial: Arrays, limit: int) -> None:
        self._initial = initial
        self._limit = limit
        self._kept: OrderedDict[int | str, Arrays] = OrderedDict()

    def before(self, sequence: int | str, *, start: bool) -> Arrays:
        """State tensors [1, ...] that a request begins with."""
        if start:
            self._kept.pop(sequence, None)
        return self._kept.get(sequence, self._initial)

    def after(self, sequence: int | str, state: Arrays, *, end: bool) -> None:
        """Keep the state that a request left, or drop the sequence at its end."""
        self._kept.pop(sequence, None)
        if end:
            return
        self._kept[sequence] = {name: values.copy() for name, values in state.items()}
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
