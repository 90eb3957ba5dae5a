"""What the flow experiment makes of calls and times: made up here, so that each can fail."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loadtest.stages.flow import ARRIVALS, JUDGED, Cells, cell_figures, largest_difference, told
from loadtest.stages.flow_device import DeviceCalls, on_device
from loadtest.stages.flow_graphs import StepCall, lock_violations, step_violations
from loadtest.stages.flow_pieces import (
    ALONE,
    INTERLEAVE,
    KEYS,
    LOCK,
    MIXED,
    MODES,
    Cell,
    Piece,
    cell_of,
    evaluation_times,
    pieces,
    serve,
    spread,
)
from python_backends.diffusion_lock.graphs import CONDITION_WIDTH, FlowGraphs
from python_backends.diffusion_lock.score import Key
from python_backends.diffusion_lock.sharing import MODES as SHARINGS
from python_backends.diffusion_lock.solver import SHORTCUT, SOLVERS, stride
from python_backends.errors import StageFailed

LOCKED = [
    StepCall((1.0, 2.0), (0.0, 0.0)),
    StepCall((1.0, 2.0), (0.5, 0.5)),
    StepCall((3.0,), (0.0,)),
    StepCall((3.0,), (0.5,)),
]


def test_a_locked_run_has_no_violation() -> None:
    assert lock_violations(LOCKED) == 0
    assert step_violations(LOCKED, [[0.0, 0.5]] * 3) == 0


@pytest.mark.parametrize(
    ("at", "call"),
    [
        (1, StepCall((1.0, 2.0, 3.0), (0.5, 0.5, 0.0))),
        (1, StepCall((1.0, 2.0, 3.0), (0.5, 0.5, 0.5))),
        (1, StepCall((1.0,), (0.5,))),
        (1, StepCall((2.0, 1.0), (0.5, 0.5))),
        (0, StepCall((1.0, 2.0), (0.5, 0.5))),
    ],
    ids=["joins later", "joins at its time", "leaves", "changes places", "begins midway"],
)
def test_whatever_breaks_a_lock_is_seen(at: int, call: StepCall) -> None:
    assert lock_violations([*LOCKED[:at], call, *LOCKED[at + 1 :]]) >= 1


@pytest.mark.parametrize(
    "times",
    [[[0.0, 0.5]] * 2, [[0.0, 0.5]] * 4, [[0.0, 0.5], [0.0, 0.5], [0.0]], [[0.0, 0.25]] * 3],
    ids=["too many pieces", "a piece is missing", "a step too many", "other times"],
)
def test_steps_that_were_not_asked_for_are_seen(times: list[list[float]]) -> None:
    assert step_violations(LOCKED, times) >= 1


def test_times_of_a_piece_count_the_solvers_evaluations() -> None:
    assert evaluation_times(Key(80, 2, "euler")) == [0.0, 0.5]
    assert evaluation_times(Key(80, 2, "midpoint")) == [0.0, 0.25, 0.5, 0.75]


def test_pieces_are_the_same_for_everybody_and_mixed_ones_differ_in_everything() -> None:
    mixed = pieces(MIXED, 16, 1)
    assert [one.key for one in mixed] == [one.key for one in pieces(MIXED, 16, 1)]
    keys = [one.key for one in mixed if one.key is not None]
    assert len({key.frames for key in keys}) == 3
    assert len({(key.steps, key.solver) for key in keys}) >= 5
    assert len({one.key for one in pieces("equal", 16, 1)}) == 1


@pytest.mark.parametrize("keys", KEYS)
def test_pieces_are_such_as_the_product_takes_and_are_told_their_stride(keys: str) -> None:
    given = pieces(keys, 100, 1)
    told = {(one.key.solver, one.key.steps, one.score.stride) for one in given}  # type: ignore[union-attr]
    assert all(stride(solver, steps) == found for solver, steps, found in told)
    assert {solver for solver, _, _ in told} == (set(SOLVERS) if keys == MIXED else {SHORTCUT})


def test_arrivals_begin_at_once_and_have_the_mean_that_was_asked_for() -> None:
    given = pieces("equal", 300, 1)
    spread(given, 0.5, seed=2)
    times = [one.at_s for one in given]
    assert times[0] == 0
    assert times == sorted(times)
    assert np.mean(np.diff(times)) == pytest.approx(0.5, rel=0.2)


class Flow:
    """Fake graphs; every velocity call takes a second of a fake clock."""

    def __init__(self, broken: bool = False) -> None:
        self.now = 0.0
        self.members: list[int] = []
        self._broken = broken

    def __call__(
        self, model: str, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        if model == "condition":
            shape = (*inputs["FRAME_PHONEME"].shape, CONDITION_WIDTH)
            return {"CONDITION": np.zeros(shape, np.float32)}
        if self._broken:
            raise StageFailed("broken")
        self.now += 1
        self.members.append(len(inputs["X"]))
        return {"VELOCITY": np.zeros_like(inputs["X"])}

    def clock(self) -> float:
        return self.now


def served(mode: str, flow: Flow, at_s: Sequence[float]) -> list[Piece]:
    given = pieces("equal", len(at_s), 1)
    for one, arrival in zip(given, at_s, strict=True):
        one.at_s = arrival
    graphs = FlowGraphs(flow, "condition", "step")
    serve(SHARINGS[mode](graphs, max_batch=2, patience_s=0.5), given, flow.clock)
    return given


@pytest.mark.parametrize(
    ("mode", "done", "members"),
    [
        (LOCK, [4.0, 8.0, 104.0], [1] * 12),
        (INTERLEAVE, [4.0, 6.0, 104.0], [1, 1, 2, 2, 1, 1, *[1] * 4]),
    ],
)
def test_time_passes_while_somebody_computes_and_leaps_to_the_next_arrival(
    mode: str, done: list[float], members: list[int]
) -> None:
    flow = Flow()
    given = served(mode, flow, [0.0, 1.5, 100.0])
    assert [one.done_s for one in given] == done
    assert flow.members == members
    assert all(one.frames is not None for one in given)


@pytest.mark.parametrize("mode", [LOCK, INTERLEAVE])
def test_a_piece_that_fails_ends_the_measurement(mode: str) -> None:
    with pytest.raises(StageFailed, match="broken"):
        served(mode, Flow(broken=True), [0.0, 0.0])


def test_a_cell_tells_waiting_from_arrival_and_the_rate_of_all() -> None:
    cell = cell_of(served(LOCK, Flow(), [0.0, 1.5, 100.0]))
    assert (cell.p50_ms, cell.p95_ms) == (4000, 6500)
    assert cell.pieces_per_s == pytest.approx(3 / 104)


def cells(slower: Callable[[str], float]) -> Cells:
    """Two rounds of every judged cell, `slower(mode)` times as slow as one."""
    return {
        (mode, keys, arrivals, JUDGED): [
            Cell(10 * slower(mode), 20 * slower(mode), 8 / slower(mode)),
            Cell(30 * slower(mode), 40 * slower(mode), 4 / slower(mode)),
        ]
        for mode in MODES
        for keys in KEYS
        for arrivals in ARRIVALS
    }


def test_figures_are_medians_and_ratios_of_each_round() -> None:
    made = cells(lambda mode: {LOCK: 2.0, INTERLEAVE: 1.0, ALONE: 4.0}[mode])
    found = cell_figures(made)
    where = f"equal_burst_n{JUDGED}"
    assert found[f"flow_lock_{where}_p50_ms"] == 40
    assert found[f"flow_alone_{where}_p95_ms"] == 120
    assert found[f"flow_interleave_by_lock_{where}_p50"] == 0.5
    assert found[f"flow_lock_by_alone_{where}_pieces_per_s"] == 2
    assert len(found) == len(KEYS) * len(ARRIVALS) * 3 * 5
    assert told(made)[f"lock_{where}"] == {"p50_ms": 40, "p95_ms": 60, "pieces_per_s": 3}


def test_the_difference_is_that_of_the_worst_value_of_the_worst_piece() -> None:
    some = [np.zeros((3, 2), np.float32), np.zeros((5, 2), np.float32)]
    others = [np.full((3, 2), 0.25, np.float32), np.zeros((5, 2), np.float32)]
    others[1][4, 1] = -0.5
    assert largest_difference(some, others) == 0.5
    with pytest.raises(ValueError, match="zip"):
        largest_difference(some, others[:1])


def test_on_the_device_members_share_the_cost_of_a_call_and_long_ones_pay_more() -> None:
    device = DeviceCalls()
    assert device.cost_s(4, 80) == pytest.approx(0.012)
    assert device.cost_s(4, 96) == pytest.approx(0.012 * 1.6)


def test_on_the_device_interleaving_brings_first_chunks_earlier() -> None:
    """The claim of the mode, where a call has a cost of its own; pieces of mixed keys gain most."""
    found = on_device(rounds=1)
    for keys, load in ((keys, load) for keys in KEYS for load in ("0.8", "1.5")):
        by_lock = found[f"flow_device_interleave_by_lock_{keys}_load_{load}_p50"]
        assert by_lock is not None
        assert by_lock < (0.9 if keys == MIXED else 1.0)


def test_on_the_device_a_crowd_gains_by_sharing_and_a_lone_piece_does_not() -> None:
    found = on_device(rounds=1)
    for keys in KEYS:
        alone, crowd = (
            found[f"flow_device_lock_by_alone_{keys}_burst_n{count}_pieces_per_s"]
            for count in (1, 16)
        )
        assert alone == pytest.approx(1.0)
        assert crowd is not None
        assert crowd > 1.1
