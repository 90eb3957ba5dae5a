"""The stall budget, and the board it reads."""

import math
import subprocess
from pathlib import Path

import pytest

from python_backends.bridge import Board
from python_backends.scheduling.stall import StallBudget, Streams
from python_backends.scheduling.window import ConditionalWindow, Reason

RUNNING = [Streams(12)]


def taught(max_stall_s: float = 0.05) -> StallBudget:
    """Passes cost 22 ms and 8 ms a member."""
    budget = StallBudget(max_stall_s)
    for members in (1, 8):
        budget.learn(members, 0.022 + 0.008 * members)
    return budget


def test_without_streams_the_encoder_is_not_limited() -> None:
    assert taught().limit([], 8) == 8
    assert taught().limit([Streams(0)], 8) == 8


@pytest.mark.parametrize(("max_stall_s", "members"), [(0.01, 1), (0.04, 2), (0.06, 4), (0.1, 8)])
def test_beside_streams_a_pass_is_no_longer_than_they_can_afford(
    max_stall_s: float, members: int
) -> None:
    budget = taught(max_stall_s)
    assert budget.limit(RUNNING, 8) == members
    assert members == 1 or budget.cost_s(members) <= max_stall_s


def test_streams_that_are_ahead_of_playback_can_afford_more_but_the_poorest_decides() -> None:
    assert taught().limit([Streams(3, slack_s=0.2)], 8) == 8
    assert taught().limit([Streams(3, slack_s=0.2), Streams(1)], 8) == 3


def test_before_anything_is_measured_a_pass_beside_streams_has_one_member() -> None:
    budget = StallBudget(0.05)
    assert budget.cost_s(1) == math.inf
    assert budget.limit(RUNNING, 8) == 1


def test_with_one_size_measured_one_member_more_is_tried() -> None:
    budget = StallBudget(0.04)
    budget.learn(1, 0.03)
    assert budget.limit(RUNNING, 8) == 2
    budget.learn(2, 0.06)
    assert budget.limit(RUNNING, 8) == 1


def test_costs_follow_what_is_measured() -> None:
    budget = taught()
    for _ in range(50):
        budget.learn(1, 0.06)
        budget.learn(8, 0.172)
    assert budget.limit(RUNNING, 8) == 1
    assert budget.cost_s(8) == pytest.approx(0.172, rel=0.01)


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        StallBudget(0)


def test_a_window_lets_a_smaller_batch_leave_for_the_sake_of_others() -> None:
    window: ConditionalWindow[int, int] = ConditionalWindow(max_batch=8, window_s=1.0)
    for item in range(6):
        window.build(0)
        window.ready(item, 0, now=0.0)
    window.build(0)
    batch = window.release(0.0, free_since=-1.0, limit=2)
    assert batch is not None
    assert (batch.items, batch.reason) == ((0, 1), Reason.STALL_BUDGET)
    assert window.release(0.0, free_since=-1.0, limit=8) is None


def test_stages_read_on_the_board_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / "board"
    writer, reader = Board(path), Board(path)
    think, speak = writer.row("think"), writer.row("speak")
    think.write(3)
    speak.write(5, slack_s=0.5)
    assert reader.streams() == [Streams(3), Streams(5, 0.5)]
    think.write(0)
    assert reader.streams() == [Streams(5, 0.5)]


def test_a_stage_that_comes_back_takes_its_own_row(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    board.row("think").write(3)
    board.row("speak").write(1)
    board.row("think")
    assert board.streams() == [Streams(1)]


def test_a_replica_in_another_process_has_a_row_of_its_own_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(tmp_path / "board")
    board.row("think").write(3)
    other = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr("os.getpid", lambda: other.pid)
    board.row("think").write(4)
    assert board.streams() == [Streams(3), Streams(4)]
    monkeypatch.undo()
    other.kill()
    other.wait()
    board.row("speak").write(5)
    assert board.streams() == [Streams(3), Streams(5)]


def test_a_full_board_is_an_error(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    for number in range(64):
        board.row(f"stage-{number}")
    with pytest.raises(ValueError, match="no row left"):
        board.row("one more")


def test_a_pass_waits_a_while_for_running_streams_to_end() -> None:
    budget = StallBudget(0.05, gather_s=0.1)
    assert budget.may_start(0.0, 0.0, 1, [Streams(0)])
    assert not budget.may_start(0.05, 0.0, 1, RUNNING)
    assert budget.may_start(0.1, 0.0, 1, RUNNING)
    assert taught().may_start(0.0, 0.0, 1, RUNNING), "without gather_s nobody waits"


def test_a_crowd_waits_longer_for_streams_to_end() -> None:
    budget = StallBudget(0.05, gather_s=0.1)
    assert not budget.may_start(1.5, 0.0, 64, RUNNING)
    assert budget.may_start(1.6, 0.0, 64, RUNNING)


def test_answers_are_held_while_nobody_runs_but_not_for_ever() -> None:
    budget = StallBudget(0.05, gather_s=0.1)
    assert not budget.may_answer(2.5, 0.0, [])
    assert budget.may_answer(3.0, 0.0, [])
    assert budget.may_answer(0.0, 0.0, RUNNING)


def test_the_first_of_a_crowd_that_was_answered_together_waits_for_half_of_it() -> None:
    budget = StallBudget(0.05, gather_s=0.1)
    budget.answered(8)
    assert not budget.may_start(0.01, 0.0, 1, [])
    assert budget.may_start(0.01, 0.0, 4, [])
    assert budget.may_start(0.1, 0.0, 1, [])
    assert budget.may_start(0.01, 0.0, 3, [], max_batch=3)


def test_one_caller_alone_never_waits_for_company() -> None:
    budget = StallBudget(0.05, gather_s=0.1)
    assert budget.may_start(0.0, 0.0, 1, [])
    budget.answered(1)
    assert budget.may_start(0.0, 0.0, 1, [])


def test_without_gathering_nobody_waits_for_company() -> None:
    budget = StallBudget(0.05)
    budget.answered(8)
    assert budget.may_start(0.0, 0.0, 1, [])
