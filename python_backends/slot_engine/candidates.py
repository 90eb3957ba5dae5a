"""The tokens that a row samples among: the best of its logits."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

CANDIDATES = 64
"""So many of each row at most; also the size of the graph that finds them."""

Values = NDArray[np.float32]
Ids = NDArray[np.int64]
Best = Callable[[Values], tuple[Values, Ids]]
"""Logits [rows, V] to values and ids [rows, CANDIDATES], the best first, equal ones by id."""


def best_of(logits: Values) -> tuple[Values, Ids]:
    """See Best: by numpy, for engines without the graph, whose rows hardly ever sample."""
    count = min(CANDIDATES, logits.shape[1])
    ids = np.argpartition(logits, -count, axis=1)[:, -count:]
    values = np.take_along_axis(logits, ids, axis=1)
    order = np.lexsort((ids, -values), axis=1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)
