"""The autoscaler's formula and windows, in fake time; and the figures that it is given."""

from typing import cast

import pytest

from deploy.figures import Row
from loadtest.operate.autoscaler import Autoscaler, Rule, Values, proposed
from loadtest.operate.callers import OK, Asked
from loadtest.operate.pod_figures import Look, PodFigures
from loadtest.operate.pods import Pods
from loadtest.operate.scale import TARGETS, Run, found

RULE = Rule({"wait": 0.1}, least=1, most=4, stable_s=30.0, period_s=10.0)


@pytest.mark.parametrize(
    ("replicas", "values", "count"),
    [
        (1, [0.2], 2),
        (2, [0.3, 0.0], 3),
        (3, [0.105, 0.105, 0.105], 3),  # within the tolerance
        (3, [0.05, 0.05, 0.05], 2),
        (3, [0.0, 0.0, 0.0], 0),
        (2, [None, None], 2),
        (2, [0.15, None], 2),  # the other counts as 0: fewer would be wanted, so nothing is done
        (2, [0.5, None], 5),
        (2, [0.0, None], 1),  # the other counts as on target
        (2, [0.095, None], 2),
    ],
)
def test_one_metric_proposes_as_many_as_bring_its_mean_to_the_target(
    replicas: int, values: Values, count: int
) -> None:
    assert proposed(replicas, values, 0.1) == count


def test_replicas_are_doubled_in_a_period_and_never_more_than_allowed() -> None:
    scaler = Autoscaler(RULE)
    assert scaler.desired(0.0, 1, {"wait": [9.0]}) == 2
    assert scaler.desired(2.0, 2, {"wait": [9.0, 9.0]}) == 2
    assert scaler.desired(10.0, 2, {"wait": [9.0, 9.0]}) == 4
    assert scaler.desired(30.0, 4, {"wait": [9.0] * 4}) == 4


def test_scaling_down_waits_for_the_whole_window_and_goes_one_by_one() -> None:
    scaler = Autoscaler(RULE)
    assert scaler.desired(0.0, 3, {"wait": [0.1] * 3}) == 3
    assert scaler.desired(29.0, 3, {"wait": [0.0] * 3}) == 3
    assert scaler.desired(30.0, 3, {"wait": [0.0] * 3}) == 2
    assert scaler.desired(35.0, 2, {"wait": [0.0] * 2}) == 2
    assert scaler.desired(40.0, 2, {"wait": [0.0] * 2}) == 1
    assert scaler.desired(60.0, 1, {"wait": [0.0]}) == 1


def test_the_metric_that_wants_most_decides() -> None:
    both = Rule({"wait": 0.1, "busy": 0.8}, least=1, most=4, stable_s=0.0, period_s=1.0)
    scaler = Autoscaler(both)
    assert scaler.desired(0.0, 3, {"wait": [0.0] * 3, "busy": [0.75] * 3}) == 3
    assert scaler.desired(5.0, 3, {"wait": [0.0] * 3, "busy": [0.2] * 3}) == 2


def look(at_s: float, waited: float, count: float, taken: float = 0.0) -> Look:
    rows = [
        Row("tristage_queue_seconds_sum", "think", {}, waited),
        Row("tristage_queue_seconds_count", "think", {}, count),
        Row("tristage_slots", "think", {"state": "running"}, taken),
        Row("tristage_slots", "think", {"state": "free"}, 4.0 - taken),
        Row("tristage_slots", "think", {"state": "waiting"}, 7.0),
        Row("tristage_open_requests", "think", {}, 9.0),
    ]
    return Look.of(at_s, rows)


def test_a_pod_tells_the_mean_wait_and_the_busy_share_of_the_window() -> None:
    figures = PodFigures(window_s=5.0)
    assert (figures.waited_s(), figures.busy()) == (None, None)
    figures.add(look(0.0, 1.0, 10.0, taken=4.0))
    assert (figures.waited_s(), figures.busy()) == (None, None)
    figures.add(look(3.0, 3.0, 20.0, taken=2.0))
    assert (figures.waited_s(), figures.busy()) == (0.2, 0.75)
    figures.add(look(8.0, 3.0, 20.0, taken=0.0))
    assert (figures.waited_s(), figures.busy()) == (0.0, 0.25)


def test_a_run_tells_its_peak_its_end_and_how_long_it_took() -> None:
    run = Run(cast(Pods, None), Autoscaler(RULE), 0.0)
    run.replicas = [(2.0, 1), (14.0, 2), (24.0, 3), (70.0, 2), (80.0, 1)]
    asked = [Asked(0.0, 1.0, OK, "a"), Asked(1.0, 2.0, "OVERLOADED")]
    figures = found(run, asked, [12.0, 54.0, 96.0], [0, 0]).figures
    assert figures == {
        "scale_peak_replicas": 3,
        "scale_final_replicas": 1,
        "scale_failed_turns": 1,
        "scale_turns": 2,
        "scale_up_s": 12.0,
        "scale_down_s": 26.0,
        "scale_replicas_drained": 2,
    }
    met = {name: target.met(figures[name] or 0.0) for name, target in TARGETS.items()}
    assert [name for name, well in met.items() if not well] == ["scale_failed_turns"]
