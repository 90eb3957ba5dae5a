"""Arithmetic of time: sorted, disjoint, half-open intervals of whole nanoseconds.

Whole numbers, so that parts add up to the whole exactly and not nearly.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

Interval = tuple[int, int]
Intervals = list[Interval]
"""Sorted by start, none empty, none touching another."""


def union(intervals: Iterable[Interval]) -> Intervals:
    """Any intervals, in any order, as sorted disjoint ones; empty ones vanish."""
    merged: Intervals = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def total(intervals: Iterable[Interval]) -> int:
    """Nanoseconds covered."""
    return sum(end - start for start, end in intervals)


def within(intervals: Sequence[Interval], start: int, end: int) -> Intervals:
    """The part that lies between `start` and `end`."""
    first = bisect_left(intervals, (start, start))
    if first and intervals[first - 1][1] > start:
        first -= 1
    cut: Intervals = []
    for index in range(first, len(intervals)):
        left, right = intervals[index]
        if left >= end:
            break
        if max(left, start) < min(right, end):
            cut.append((max(left, start), min(right, end)))
    return cut


def intersection(first: Sequence[Interval], second: Sequence[Interval]) -> Intervals:
    """What both cover."""
    common: Intervals = []
    i = j = 0
    while i < len(first) and j < len(second):
        start = max(first[i][0], second[j][0])
        end = min(first[i][1], second[j][1])
        if start < end:
            common.append((start, end))
        if first[i][1] <= second[j][1]:
            i += 1
        else:
            j += 1
    return common


def difference(first: Sequence[Interval], second: Sequence[Interval]) -> Intervals:
    """What `first` covers and `second` does not."""
    left: Intervals = []
    j = 0
    for start, end in first:
        while j < len(second) and second[j][1] <= start:
            j += 1
        at, k = start, j
        while k < len(second) and second[k][0] < end:
            if second[k][0] > at:
                left.append((at, second[k][0]))
            at = max(at, second[k][1])
            k += 1
        if at < end:
            left.append((at, end))
    return left


def first(intervals: Sequence[Interval], length: int) -> Intervals:
    """The earliest part, `length` at most."""
    cut: Intervals = []
    for start, end in intervals:
        end = min(end, start + length)
        if start < end:
            cut.append((start, end))
            length -= end - start
    return cut


def shares(
    whole: Sequence[Interval], claims: Iterable[tuple[str, Sequence[Interval]]], rest: str
) -> dict[str, Intervals]:
    """`whole` divided among claims, the earlier claim first; what nobody claims is `rest`.

    The parts are disjoint and together exactly `whole`.
    """
    parts: dict[str, Intervals] = {}
    left = list(whole)
    for name, claimed in claims:
        parts[name] = union([*parts.get(name, []), *intersection(left, claimed)])
        left = difference(left, claimed)
    parts[rest] = union([*parts.get(rest, []), *left])
    return parts
