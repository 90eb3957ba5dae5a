"""Open requests of a stage take bytes of its budget, and give all of them back in the end."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import pytest

from python_backends.bridge import publisher as publishing
from python_backends.bridge import request as bridge_request
from python_backends.bridge import tensors
from python_backends.errors import Cancelled, InvalidInput, Overloaded, StageError, parse
from python_backends.scheduling.bytes import Usage
from tests import fakes
from tests.unit.test_bridge_backend import Stage

HOLD, FAIL = 2.0, 0.0
DECLARED = {"bytes_process": "1MiB", "bytes_requests": "64", "bytes_per_input": "2"}
"""Eight requests of one float32."""

Ask = Callable[..., fakes.InferenceResponseSender]


@contextmanager
def serving(**declared: str) -> Iterator[tuple[Stage, Ask]]:
    stage = Stage()
    stage.initialize(fakes.model_args("echo", DECLARED | declared, inputs=["X", "CONTROL"]))

    def ask(x: float = 1, turn: str = "t", numbers: int = 1) -> fakes.InferenceResponseSender:
        values = np.full((1, numbers), x, np.float32)
        request = fakes.arriving({"X": values}, request_id=turn)
        stage.execute([request])
        return request.sender

    yield stage, ask
    stage.finalize()
    assert stage._requests.usage().used == 0
    assert not stage._requests._held


def cancel(stage: Stage, turn: str) -> None:
    order = fakes.arriving({"CONTROL": fakes.text(json.dumps({"cancel": turn}))})
    stage.execute([order])
    order.sender.wait()


def error(sender: fakes.InferenceResponseSender) -> StageError:
    found = parse(sender.error())
    assert found is not None
    return found


def test_a_request_beyond_the_budget_fails_alone_and_says_what_is_allowed() -> None:
    with serving() as (stage, ask):
        held = ask(HOLD, turn="held")
        refused = error(ask(numbers=9, turn="huge"))
        assert isinstance(refused, InvalidInput)
        assert (refused.reason, refused.stage, refused.turn) == ("bytes", "echo", "huge")
        assert refused.message == "this request takes 72 bytes; open requests may take 64 here"
        assert not ask(turn="beside").wait()[-1].has_error()
        cancel(stage, "held")
        assert isinstance(error(held), Cancelled)


def test_inputs_that_are_to_be_refused_are_not_even_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []

    def to_array(tensor: fakes.Tensor) -> Any:
        copied.append(tensor.as_numpy().nbytes)
        return tensors.to_array(tensor)

    monkeypatch.setattr(bridge_request, "to_array", to_array)
    with serving() as (_, ask):
        error(ask(numbers=9, turn="huge"))
        ask(numbers=8, turn="largest").wait()
    assert copied == [32]


def test_a_request_that_does_not_fit_now_may_come_back_when_others_have_ended() -> None:
    with serving() as (stage, ask):
        held = [ask(HOLD, turn=f"held-{number}") for number in range(8)]
        refused = error(ask(turn="one more"))
        assert isinstance(refused, Overloaded)
        assert refused.reason == "bytes"
        assert refused.retry_after_ms
        assert (
            refused.message == "this request takes 8 bytes; 0 of the 64 for open requests are free"
        )
        cancel(stage, "held-0")
        held[0].wait()
        # Its bytes are given back a moment behind its end.
        deadline = time.monotonic() + fakes.WAIT_S
        while ask(turn="again").wait()[-1].has_error():
            assert time.monotonic() < deadline
        for number in range(1, 8):
            cancel(stage, f"held-{number}")


def test_a_stage_that_declares_nothing_bounds_nothing_and_still_tells_what_is_open() -> None:
    with serving(bytes_requests="0") as (stage, ask):
        held = ask(HOLD, turn="held", numbers=1000)
        assert stage._requests.usage().used == 8000
        cancel(stage, "held")
        held.wait()


def test_nothing_leaks_however_requests_end() -> None:
    """Answered, refused, cancelled, cut short by a bug of the loop, in any order."""
    random = Random(5)
    with serving() as (stage, ask):
        senders = []
        for number in range(300):
            kind = random.choice([1.0, 1.0, HOLD, HOLD, FAIL])
            senders.append(ask(kind, turn=f"t{number}", numbers=random.choice([1, 1, 3, 9])))
            if random.random() < 0.4:
                cancel(stage, f"t{random.randrange(number + 1)}")
            usage = stage._requests.usage()
            assert usage.used <= usage.peak <= 64
        for number in range(300):
            cancel(stage, f"t{number}")
        assert all(sender.wait() is not None for sender in senders)


def test_what_is_declared_used_and_was_used_at_most_is_on_metrics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "PERIOD_S", 0.002)
    with serving() as (stage, ask):
        stage.usage = lambda: {"batch": Usage(100, 30, 70)}
        held = [ask(HOLD, turn=f"held-{number}") for number in range(3)]
        _until({"requests used": 24, "batch used": 30, "batch peak": 70, "batch declared": 100})
        for number in range(3):
            cancel(stage, f"held-{number}")
            held[number].wait()
        _until({"requests declared": 64, "process declared": 2**20, "requests used": 0})
        _until({"requests peak": 24})


def _until(wanted: Mapping[str, float]) -> None:
    deadline = time.monotonic() + fakes.WAIT_S
    while not wanted.items() <= (told := _told()).items():
        assert time.monotonic() < deadline, told
        time.sleep(0.001)


def _told() -> dict[str, Any]:
    """Part and kind to what /metrics shows."""
    found = {}
    for row, values in list(fakes.METRICS.items()):
        if row.startswith("tristage_stage_bytes"):
            labels = dict(part.split("=") for part in row[row.index("{") + 1 : -1].split(","))
            found[f"{labels['part']} {labels['kind']}".replace('"', "")] = values[-1]
    return found
