"""Locked batches as their pieces' events tell of them."""

import pytest

from loadtest.stages import served_modes
from loadtest.stages.served_modes import Burst, lock_violations
from loadtest.stages.speaking_paces import Pass

FIRST, SECOND = Pass(0, 10, members=2), Pass(10, 25, members=1)


def test_batches_that_begin_and_end_together_one_after_another_keep_the_lock() -> None:
    assert lock_violations([FIRST, SECOND, FIRST]) == 0


@pytest.mark.parametrize(
    "passes",
    [
        [FIRST, SECOND],
        [FIRST, Pass(0, 12, members=2), SECOND],
        [FIRST, FIRST, Pass(9, 25, members=1)],
        [FIRST, FIRST, FIRST, SECOND],
    ],
    ids=["a member is missing", "one ends later", "two at a time", "one too many"],
)
def test_anything_else_breaks_it(passes: list[Pass]) -> None:
    assert lock_violations(passes) > 0


def test_figures_are_those_of_the_largest_crowd_and_ratios_of_rounds() -> None:
    bursts = {
        (mode, keys, requests): [Burst([10.0 * k, 10.0 * k, 20.0 * k], 4.0 / k) for k in (1, 3)]
        for mode in served_modes.MODES
        for keys in served_modes.KEYS
        for requests in served_modes.REQUESTS
    }
    bursts["interleave", "equal", 16] = [Burst([5.0], 8.0), Burst([60.0], 2.0)]
    found = served_modes.burst_figures(bursts)
    assert found["served_lock_equal_n16_p50_ms"] == 20.0
    assert found["served_interleave_by_lock_equal_n16_p50"] == pytest.approx((0.5 + 2.0) / 2)
    assert found["served_lock_by_alone_mixed_n16_sentences_per_s"] == 1.0
    assert not [name for name in found if "_n4_" in name]
