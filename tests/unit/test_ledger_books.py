"""Both books against a simulator that knows where every nanosecond went."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtest.ledger.device import Idle, device_books
from loadtest.ledger.phases import HOP_MAX_NS, Lanes
from loadtest.ledger.request import Cause, RequestBook
from loadtest.ledger.run import Run
from loadtest.ledger.stall import stalls
from loadtest.ledger.verdict import Disease, judge
from tests.unit.ledger_simulator import simulate
from tests.unit.ledger_world import MS, Knobs, World

PLAIN = Knobs(people=8)
PLATEAU = Knobs(people=64, monolith=True, slots=32, gap=4.0, seconds=12.0)
SETTINGS = {
    "one person": Knobs(people=1),
    "pauses": Knobs(people=2, pause=300.0),
    "gap": replace(PLAIN, gap=7.0),
    "window": replace(PLAIN, window=15.0),
    "few slots": Knobs(people=24, slots=4),
    "encoder apart": Knobs(people=24, encoder_apart=True, build=5.0),
    "slow ways": replace(PLAIN, hop=20.0),
    "crowd": Knobs(people=64),
    "small encoder batches": Knobs(people=24, encoder_batch=1, gap=3.0),
    "monolith": Knobs(people=8, monolith=True, gap=4.0),
    "plateau": PLATEAU,
}


class Books:
    """A simulated run, its truth and its books."""

    def __init__(self, knobs: Knobs, folder: Path) -> None:
        self.world: World = simulate(knobs, folder)
        self.run = Run.read(folder)
        self.lanes = Lanes(self.run)
        self.requests = RequestBook.of(self.run, self.lanes)
        self.devices = device_books(self.run, self.lanes)

    @property
    def verdict_headline(self) -> str:
        return judge(self.devices, self.requests, self.run.device_words).headline


@pytest.fixture(params=SETTINGS, scope="module")
def books(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Books:
    return Books(SETTINGS[request.param], tmp_path_factory.mktemp("run"))


def test_every_row_of_every_turn_is_the_simulator_s_truth(books: Books) -> None:
    truth = {turn.name: turn.truth for turn, _ in books.world.done}
    assert books.requests.turns
    for turn, row in zip(books.requests.turns, books.requests.table, strict=True):
        assert dict(zip(Cause, row, strict=True)) == {c: truth[turn.turn][c] for c in Cause}


def test_rows_add_up_to_the_clients_latency_and_nothing_is_unexplained(books: Books) -> None:
    latencies = [turn.end_ns - turn.intended_ns for turn in books.requests.turns]
    first_audio = [turn.sound[0][0] - turn.intended_ns for turn in books.requests.turns]
    assert books.requests.table.sum(1).tolist() == latencies
    assert books.requests.first_audio.sum(1).tolist() == first_audio
    assert books.requests.unexplained(100) == 0.0


def test_every_row_of_every_device_is_the_simulators_truth(books: Books) -> None:
    truth = {device.name: device for device in books.world.devices.values()}
    assert {book.device for book in books.devices} == set(truth)
    for book in books.devices:
        assert book.busy == truth[book.device].busy
        assert book.idle == {cause: truth[book.device].idle[cause] for cause in Idle}


def test_the_rows_of_a_device_add_up_to_the_window(books: Books) -> None:
    for book in books.devices:
        assert book.busy_ns + sum(book.idle.values()) == book.wall_ns == books.run.wall_ns


@pytest.mark.parametrize(
    ("cause", "knobs"),
    [
        (Cause.HOST_GAP, replace(PLAIN, people=1, gap=3.0)),
        (Cause.BUILDING, replace(PLAIN, people=1, build=42.0)),
        (Cause.WINDOW, replace(PLAIN, people=1, window=40.0)),
        (Cause.TRANSPORT, replace(PLAIN, people=1, hop=16.0)),
    ],
)
def test_an_injected_delay_lands_in_its_own_row_and_in_no_other(
    cause: Cause, knobs: Knobs, tmp_path: Path
) -> None:
    """One person: no queue can pass the delay on to another row."""
    before = Books(replace(PLAIN, people=1), tmp_path / "before").requests.mean_ms()
    after = Books(knobs, tmp_path / "after").requests.mean_ms()
    injected = {
        Cause.HOST_GAP: (39 + 74) * 3.0,
        Cause.BUILDING: 40.0,
        Cause.WINDOW: 40.0,
        Cause.TRANSPORT: 4 * 15.0,
    }[cause]
    assert after[cause] - before[cause] == pytest.approx(injected)
    others = [one for one in Cause if one is not cause]
    assert [after[one] for one in others] == pytest.approx([before[one] for one in others])


def test_a_slower_encoder_pass_is_waiting_in_the_requests_and_busy_time_on_the_device(
    tmp_path: Path,
) -> None:
    before = Books(replace(PLAIN, encoder_batch=1), tmp_path / "before")
    after = Books(replace(PLAIN, encoder_batch=1, encoder_extra=40.0), tmp_path / "after")
    rows = before.requests.mean_ms(), after.requests.mean_ms()
    assert rows[1][Cause.ENCODER] > 2 * rows[0][Cause.ENCODER]
    assert rows[1][Cause.COMPUTING] - rows[0][Cause.COMPUTING] < 41.0
    busy = [one.devices[0].busy["listen"] / one.run.wall_ns for one in (before, after)]
    assert busy[1] > 1.5 * busy[0]
    assert after.devices[0].busy_share >= 0.9


def test_an_encoder_on_its_own_device_takes_nothing_from_running_streams(tmp_path: Path) -> None:
    shared = Books(Knobs(people=24), tmp_path / "shared")
    apart = Books(Knobs(people=24, encoder_apart=True), tmp_path / "apart")
    assert stalls(apart.run, apart.lanes).person_ms_per_pass == 0.0
    lost = stalls(shared.run, shared.lanes)
    assert lost.person_ms_per_pass == pytest.approx(lost.running_mean * lost.longest_ms, rel=0.5)
    assert lost.person_ms_per_pass > 100.0


def test_eight_people_lose_eight_times_the_pass_and_sixty_four_as_often_as_run(
    tmp_path: Path,
) -> None:
    """The seed's product: 30 ms times everybody who is running (never more than the limit)."""
    few = Books(replace(PLATEAU, people=8), tmp_path / "8")
    many = Books(PLATEAU, tmp_path / "64")
    assert stalls(few.run, few.lanes).person_ms_per_pass <= 8 * 30.0
    assert 25 * 30.0 < stalls(many.run, many.lanes).person_ms_per_pass <= 32 * 30.0


@pytest.mark.parametrize(
    ("knobs", "headline"),
    [
        (PLATEAU, "schedule-bound, mostly by gaps between steps"),
        (Knobs(people=64), "compute-bound, mostly by listen"),
        (Knobs(people=1, window=200.0), "schedule-bound, mostly by waiting in the window"),
        (Knobs(people=1, build=300.0), "schedule-bound, mostly by building features"),
        (Knobs(people=1, hop=90.0), "schedule-bound, mostly by transport"),
        (Knobs(people=1, pause=3000.0), "not loaded"),
    ],
)
def test_the_verdict_names_what_was_made_slow(knobs: Knobs, headline: str, tmp_path: Path) -> None:
    assert Books(knobs, tmp_path).verdict_headline == headline


def test_the_plateaus_verdict_names_all_three_of_the_seeds_causes(tmp_path: Path) -> None:
    plateau = Books(PLATEAU, tmp_path)
    verdict = judge(plateau.devices, plateau.requests, plateau.run.device_words)
    assert verdict.disease is Disease.SCHEDULE
    said = " ".join(verdict.words)
    for cause in (Cause.HOST_GAP, Cause.ENCODER, Cause.ADMISSION):
        assert cause in said
    assert "emulated device" in said
    assert len(verdict.change) >= 3


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> Run:
    """The run with every turn's line changed in place."""
    lines = lines_of(folder / "turns.jsonl")
    for line in lines:
        change(line)
    (folder / "turns.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run.read(folder)


def test_time_without_a_record_is_unexplained_and_not_forced_away(tmp_path: Path) -> None:
    simulate(PLAIN, tmp_path)
    run = edited(tmp_path, lambda line: line.update(events=[]))
    lanes = Lanes(run)
    requests = RequestBook.of(run, lanes)
    assert requests.unexplained(50) == 1.0
    (book,) = device_books(run, lanes)
    assert book.idle[Idle.UNEXPLAINED] == book.wall_ns - book.busy_ns > 0


def test_a_way_explains_no_more_than_a_way_can_take(tmp_path: Path) -> None:
    books = Books(Knobs(people=1, hop=150.0), tmp_path)
    rows = books.requests.mean_ms()
    assert rows[Cause.TRANSPORT] == pytest.approx(4 * HOP_MAX_NS / MS)
    assert rows[Cause.UNEXPLAINED] == pytest.approx(4 * 50.0)


def test_a_hole_within_a_stage_is_unexplained(tmp_path: Path) -> None:
    """The span of thinking begins after three steps of 8.65 ms, which nothing covers then."""

    def shorten(line: dict[str, Any]) -> None:
        for event in line["events"]:
            if (event["stage"], event["what"]) == ("think", "compute"):
                event["start_ns"] += round(3 * 8.65 * MS)

    simulate(Knobs(people=1), tmp_path)
    run = edited(tmp_path, shorten)
    rows = RequestBook.of(run, Lanes(run)).mean_ms()
    assert rows[Cause.UNEXPLAINED] == pytest.approx(3 * 8.65)


def test_a_generator_that_was_late_has_a_row_of_its_own(tmp_path: Path) -> None:
    def late(line: dict[str, Any]) -> None:
        line["intended_ns"] -= 25 * MS

    simulate(PLAIN, tmp_path)
    run = edited(tmp_path, late)
    assert RequestBook.of(run, Lanes(run)).mean_ms()[Cause.SENDING] == pytest.approx(25.0)


def test_host_work_and_waking_up_are_told_apart_where_loops_record_their_work(
    tmp_path: Path,
) -> None:
    """Half of each gap is recorded as host work: the other half is waking up."""
    books = Books(Knobs(people=1, gap=6.0), tmp_path)
    passes = lines_of(tmp_path / "device.jsonl")
    (tmp_path / "spans").mkdir()
    for stage in ("think", "speak"):
        ends = [one["end_ns"] for one in passes if one["stage"] == stage]
        host = [{"stage": stage, "what": "host", "start_ns": e, "end_ns": e + 3 * MS} for e in ends]
        text = "".join(json.dumps(span) + "\n" for span in host) + '{"stage": "cut'
        (tmp_path / "spans" / f"{stage}-1.jsonl").write_text(text)
    run = Run.read(tmp_path)
    (book,) = device_books(run, Lanes(run))
    before = books.devices[0].idle[Idle.HOST_GAP]
    assert book.idle[Idle.WAKE_UP] == pytest.approx(before / 2, rel=0.01)
    assert book.idle[Idle.HOST_GAP] == pytest.approx(before / 2, rel=0.05)
