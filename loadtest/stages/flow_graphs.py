"""The flow decoder's graphs in this process, and what the calls to them prove."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

CONDITION, STEP = "acoustic_condition", "acoustic_step"
REPOSITORY = Path(__file__).parents[2] / "model_repository"

Row = float
"""Who a row is: its condition's first value, which is made once a piece and differs by piece."""


@dataclass(frozen=True)
class StepCall:
    """One velocity call."""

    rows: tuple[Row, ...]
    times: tuple[float, ...]


class Graphs:
    """Is called like `bridge.call`; keeps a book of the velocity calls."""

    def __init__(self, repository: Path = REPOSITORY) -> None:
        self.calls: list[StepCall] = []
        self._sessions = {
            model: _session(repository / model / "1" / "model.onnx") for model in (CONDITION, STEP)
        }

    def __call__(
        self, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        if model == STEP:
            rows = inputs["CONDITION"][:, 0, 0].tolist()
            self.calls.append(StepCall(tuple(rows), tuple(inputs["TIME"][:, 0].tolist())))
        found = self._sessions[model].run(list(outputs), dict(inputs))
        return dict(zip(outputs, found, strict=True))


def _session(path: Path) -> Any:
    """One thread, as the models are configured."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def lock_violations(calls: Sequence[StepCall]) -> int:
    """Calls whose rows are at different times, or, behind time 0, not the rows of the call before.

    A locked batch has none.
    """
    mixed = sum(len(set(call.times)) > 1 for call in calls)
    begun_late = sum(max(call.times) > 0 for call in calls[:1])
    changed = sum(max(b.times) > 0 and b.rows != a.rows for a, b in pairwise(calls))
    return mixed + begun_late + changed


def step_violations(calls: Sequence[StepCall], expected: Sequence[Sequence[float]]) -> int:
    """Pieces that did not make exactly their evaluations in order; `expected` has the times of each
    piece, in whatever order the pieces are."""
    made: dict[Row, list[float]] = defaultdict(list)
    for call in calls:
        for row, time in zip(call.rows, call.times, strict=True):
            made[row].append(time)
    found = sorted(made.values())
    wanted = sorted([float(np.float32(time)) for time in times] for times in expected)
    wrong = sum(one != other for one, other in zip(found, wanted, strict=False))
    return wrong + abs(len(found) - len(wanted))
