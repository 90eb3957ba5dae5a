"""What a stage tells of itself reaches /metrics, and is given up before the stub exits."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.bridge import Arrived, Closed, Inbox, Meters, ModelConfig, StageBackend
from python_backends.bridge import publisher as publishing
from python_backends.bridge.figures import FIGURES, Figures
from python_backends.bridge.metered import MeteredRequest
from python_backends.bridge.meters import BACKLOG, Labels, Tally
from python_backends.bridge.outbox import at_once
from python_backends.bridge.plain import PlainBackend
from python_backends.bridge.publisher import MOST_DURATIONS, Publisher, summed
from python_backends.errors import Overloaded
from tests import fakes
from tests.unit.acoustic_stage import Stage as Acoustic
from tests.unit.acoustic_stage import interleaved
from tests.unit.acoustic_stage import locked as acoustic

__all__ = ["acoustic", "interleaved"]

X = {"X": np.ones((1, 1), np.float32)}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "PERIOD_S", 0.002)


def until(row: str, wanted: Callable[[list[float]], bool]) -> list[float]:
    """What the row shows as soon as that is what is wanted."""
    deadline = time.monotonic() + fakes.WAIT_S
    while not wanted(values := list(fakes.METRICS.get(row, []))):
        assert time.monotonic() < deadline, f"{row} is {values}"
        time.sleep(0.001)
    return values


def until_timed(row: str, count: int = 1) -> list[float]:
    """The durations of a histogram, once there are so many."""
    return until(row, lambda values: len(values) >= count)


def until_counted(row: str, count: float) -> None:
    """Return when a counter or a gauge shows exactly this."""
    until(row, lambda values: values == [count])


def test_a_tally_gives_everything_once_in_order() -> None:
    tally = Tally()
    tally.observe("step_seconds", 0.5)
    tally.count("releases_total", reason="full")
    tally.slots(running=1, waiting=2, free=3)
    assert tally.take() == [
        ("step_seconds", (), 0.5),
        ("releases_total", (("reason", "full"),), 1.0),
        ("slots", (("state", "running"),), 1),
        ("slots", (("state", "waiting"),), 2),
        ("slots", (("state", "free"),), 3),
    ]
    assert tally.take() == []


def test_a_tally_that_nobody_takes_keeps_the_newest() -> None:
    tally = Tally()
    for number in range(BACKLOG + 10):
        tally.observe("step_seconds", number)
    kept = tally.take()
    assert (len(kept), kept[0][2], kept[-1][2]) == (BACKLOG, 10, BACKLOG + 9)


def test_threads_that_tell_at_the_same_time_lose_nothing() -> None:
    tally, taken = Tally(), 0
    threads = [
        threading.Thread(target=lambda: [tally.observe("step_seconds", 1) for _ in range(1000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += len(tally.take())
    assert taken + len(tally.take()) == 4000


def test_meters_that_nobody_reads_take_everything() -> None:
    nobody = Meters()
    nobody.observe("step_seconds", 0.5)
    nobody.count("releases_total", reason="full")
    nobody.step(0.5)
    nobody.slots(running=1, waiting=2, free=3)


def test_counters_are_added_up_and_gauges_keep_their_last_value_before_publishing() -> None:
    tally = Tally()
    for number in range(3):
        tally.count("releases_total", reason="full")
        tally.gauge("bytes", number)
        tally.observe("step_seconds", number)
    tally.count("releases_total", reason="window")
    assert summed(tally.take()) == [
        ("releases_total", (("reason", "full"),), 3.0),
        ("bytes", (), 2),
        ("releases_total", (("reason", "window"),), 1.0),
        ("step_seconds", (), 0),
        ("step_seconds", (), 1),
        ("step_seconds", (), 2),
    ]


def test_of_too_many_durations_a_sample_is_published_while_counters_stay_exact() -> None:
    tally = Tally()
    for number in range(1000):
        tally.step(number)
    tally.observe("queue_seconds", 0.5)
    published = summed(tally.take())
    steps = [value for name, _, value in published if name == "step_seconds"]
    assert len(steps) == len(set(steps)) == MOST_DURATIONS
    assert max(steps) > MOST_DURATIONS
    assert ("steps_total", (), 1000.0) in published
    assert ("queue_seconds", (), 0.5) in published


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_named_and_described_as_prometheus_wants_it(name: str) -> None:
    figure = FIGURES[name]  # type: ignore[index]
    assert (figure.kind == "HISTOGRAM") == name.endswith("_seconds") == bool(figure.buckets)
    assert (figure.kind == "COUNTER") == name.endswith("_total")
    assert list(figure.buckets) == sorted(set(figure.buckets))
    assert figure.description.startswith("Seconds") == name.endswith("_seconds")


def test_every_row_bears_its_stage() -> None:
    figures = Figures("think")
    figures.tell("bytes", (), 7)
    figures.tell("slots", (("state", "free"),), 3)
    assert fakes.METRICS == {
        'tristage_bytes{stage="think"}': [7],
        'tristage_slots{stage="think",state="free"}': [3],
    }


def test_metrics_are_given_up_before_their_families_and_nothing_comes_back() -> None:
    figures = Figures("think")
    figures.tell("bytes", (), 7)
    figures.tell("step_seconds", (), 0.5)
    rows = ['tristage_bytes{stage="think"}', 'tristage_step_seconds{stage="think"}']
    figures.close()
    assert list(fakes.GIVEN_UP) == [*rows, "tristage_bytes", "tristage_step_seconds"]
    fakes.METRICS.clear()
    figures.tell("bytes", (), 8)
    assert fakes.METRICS == {}


def test_a_publisher_that_fails_says_so_and_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise fakes.TritonModelException("metrics are off")

    monkeypatch.setattr(fakes, "MetricFamily", refuse)
    for kind in ("COUNTER", "GAUGE"):
        monkeypatch.setattr(refuse, kind, kind.lower(), raising=False)
    tally = Tally()
    tally.gauge("bytes", 1)
    publisher = Publisher("think", tally, Figures("think"))
    publisher._thread.join(fakes.WAIT_S)
    publisher.close()
    assert any("metrics are off" in message for _, message in fakes.Logger.lines)


class Stubborn(fakes.InferenceResponseSender):
    """Does not take any response with tensors, as when shared memory is full."""

    def send(self, response: fakes.InferenceResponse | None = None, flags: int = 0) -> None:
        if response is not None and response.output_tensors():
            raise fakes.TritonModelException("no shared memory left")
        super().send(response, flags)


def metered(
    tally: Tally, sender: fakes.InferenceResponseSender | None = None, **inputs: NDArray[Any]
) -> MeteredRequest:
    native = fakes.arriving({**X, **inputs})
    native.sender = sender or native.sender
    return MeteredRequest(native, "think", lambda _: None, at_once, tally)


def names_and_labels(tally: Tally) -> list[tuple[str, Labels]]:
    return [(name, labels) for name, labels, _ in tally.take()]


def test_a_request_tells_of_its_first_response_and_of_its_end_once_each() -> None:
    tally = Tally()
    request = metered(tally)
    request.send(X)
    assert names_and_labels(tally) == [("first_chunk_seconds", ())]
    request.send(X)
    request.finish(X)
    request.fail(Overloaded("too late"))
    assert names_and_labels(tally) == [("requests_total", (("outcome", "ok"),))]


def test_an_answer_in_one_response_is_the_first_one_and_an_error_is_none() -> None:
    tally = Tally()
    metered(tally).finish(X)
    assert [name for name, _ in names_and_labels(tally)] == [
        "first_chunk_seconds",
        "requests_total",
    ]
    metered(tally).finish()
    metered(tally).fail(Overloaded("no room"))
    assert names_and_labels(tally) == [
        ("requests_total", (("outcome", "ok"),)),
        ("requests_total", (("outcome", "OVERLOADED"),)),
    ]


def test_an_answer_that_the_server_did_not_take_counts_as_a_failure() -> None:
    tally = Tally()
    metered(tally, Stubborn()).finish(X)
    assert names_and_labels(tally) == [("requests_total", (("outcome", "STAGE_FAILED"),))]


class Grumbler:
    """Answers in two responses, or says that there is no room."""

    def run(self, inbox: Inbox) -> None:
        while True:
            for event in inbox.take(None):
                match event:
                    case Arrived(request) if request.turn == "late":
                        request.fail(Overloaded("no room"))
                    case Arrived(request):
                        request.send({"Y": request.required("X")})
                        request.finish({"Y": request.required("X")})
                    case Closed():
                        return


class Stage(StageBackend):
    def make_loop(self, config: ModelConfig) -> Grumbler:
        self.meters.gauge("bytes", 1024)
        return Grumbler()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.initialize(fakes.model_args("think", {}))
    yield made
    made.finalize()


def ask(stage: StageBackend, turn: str = "t", **more: object) -> fakes.InferenceResponseSender:
    native = fakes.arriving(X, request_id=turn, **more)  # type: ignore[arg-type]
    stage.execute([native])
    native.sender.wait()
    return native.sender


def test_requests_are_counted_by_how_they_ended(stage: Stage) -> None:
    for turn in ("a", "b", "late"):
        ask(stage, turn)
    ask(stage, parameters={"what": 1})
    order = fakes.arriving({"CONTROL": fakes.text('{"cancel": "gone"}')})
    stage.execute([order])
    ask(stage, "gone")
    rows = {"ok": 2, "OVERLOADED": 1, "INVALID_INPUT": 1, "CANCELLED": 1}
    for outcome, count in rows.items():
        until_counted(f'tristage_requests_total{{stage="think",outcome="{outcome}"}}', count)
    told = {row: v for row, v in fakes.METRICS.items() if row.startswith("tristage_requests")}
    assert sum(value[0] for value in told.values()) == 5


def test_the_first_response_is_timed_once_and_errors_are_none(stage: Stage) -> None:
    before = time.monotonic()
    ask(stage, "late")
    ask(stage, "a")
    until_counted('tristage_requests_total{stage="think",outcome="ok"}', 1)
    [seconds] = until_timed('tristage_first_chunk_seconds{stage="think"}')
    assert 0 < seconds < time.monotonic() - before


def test_orders_are_no_requests(stage: Stage) -> None:
    for order in ('{"probe": true}', '{"clock": true}', "rubbish"):
        native = fakes.arriving({"CONTROL": fakes.text(order)})
        stage.execute([native])
        native.sender.wait()
    ask(stage, "a")
    until_counted('tristage_requests_total{stage="think",outcome="ok"}', 1)
    until_timed('tristage_first_chunk_seconds{stage="think"}')
    assert not [row for row in fakes.METRICS if "INVALID_INPUT" in row]


def test_what_a_loop_tells_while_it_is_made_is_published(stage: Stage) -> None:
    until_counted('tristage_bytes{stage="think"}', 1024)


def test_an_idle_stage_says_at_once_that_nothing_is_open(stage: Stage) -> None:
    assert fakes.METRICS['tristage_open_requests{stage="think"}'] == [0]
    ask(stage)
    until_counted('tristage_open_requests{stage="think"}', 0)


def test_a_stage_unloads_its_threads_before_its_metrics_and_these_before_their_families() -> None:
    stage = Stage()
    stage.initialize(fakes.model_args("think", {}))
    ask(stage)
    until_timed('tristage_first_chunk_seconds{stage="think"}')
    stage.finalize()
    given_up = list(fakes.GIVEN_UP)
    rows = [name for name in given_up if "{" in name]
    families = [name for name in given_up if "{" not in name]
    assert given_up == rows + families
    assert set(rows) == set(fakes.METRICS)
    assert len(families) == len(set(families)) >= 3
    assert not [one for one in threading.enumerate() if one.name.startswith("think")]


def test_a_stage_that_cannot_load_leaves_neither_threads_nor_families() -> None:
    class Lost(StageBackend):
        def make_loop(self, config: ModelConfig) -> Grumbler:
            raise OSError("the artefact is gone")

    with pytest.raises(OSError, match="artefact"):
        Lost().initialize(fakes.model_args("lost", {}))
    assert fakes.METRICS == {}
    assert not [one for one in threading.enumerate() if one.name.startswith("lost")]


def test_the_acoustic_stage_publishes_its_waits_its_batches_and_its_places(
    acoustic: Acoustic,
) -> None:
    acoustic.hold()
    for _ in range(3):
        acoustic.send()
    acoustic.settle()
    for state, count in {"waiting": 3, "running": 1, "free": 7}.items():
        until_counted(f'tristage_slots{{stage="acoustic",state="{state}"}}', count)
    acoustic.flow.open.set()
    for sender in acoustic.sent:
        sender.wait()
    waits = until_timed('tristage_lock_seconds{stage="acoustic"}', 4)
    queues = until_timed('tristage_queue_seconds{stage="acoustic"}', 4)
    batches = until_timed('tristage_step_seconds{stage="acoustic"}', 2)
    assert [len(waits), len(queues), len(batches)] == [4, 4, 2]
    assert fakes.METRICS['tristage_steps_total{stage="acoustic"}'] == [2]
    assert all(0 <= wait <= queue for wait, queue in zip(waits, queues, strict=True))
    assert waits[1] > waits[0]


def test_an_interleaved_piece_waits_once_and_its_steps_are_counted_one_by_one(
    interleaved: Acoustic,
) -> None:
    interleaved.hold()
    interleaved.send()
    interleaved.settle()
    interleaved.flow.open.set()
    for sender in interleaved.sent:
        sender.wait()
    waits = until_timed('tristage_lock_seconds{stage="acoustic"}', 2)
    steps = until_timed('tristage_step_seconds{stage="acoustic"}', 5)
    assert [len(waits), len(steps)] == [2, 5], "four steps each, of which they share three"
    assert fakes.METRICS['tristage_steps_total{stage="acoustic"}'] == [5]


class Pooled(PlainBackend):
    def __init__(self, held: int) -> None:
        self.held = held

    def load(self, config: ModelConfig) -> None:
        """Nothing to open."""

    def held_bytes(self) -> int:
        return self.held


@pytest.mark.parametrize("held", [0, 4096])
def test_a_plain_model_says_what_its_pools_take(held: int) -> None:
    model = Pooled(held)
    model.initialize(fakes.model_args("think_step", {}))
    assert fakes.METRICS.get('tristage_bytes{stage="think_step"}', [0]) == [held]
    model.finalize()
    assert len(fakes.GIVEN_UP) == (2 if held else 0)
