"""What goes wrong with one caller's request is told to nobody else, and to the log by its place."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.ar_loop.tasks import intone
from python_backends.bridge import Inbox, ModelConfig, PlainBackend, StageBackend, log_fault
from python_backends.bridge.log import LOG_TEXT
from python_backends.encoder_window.workers import _failed_build
from python_backends.errors import InvalidInput, StageError, StageFailed, from_text, told
from python_backends.slot_engine.bound import BoundGraph
from tests import fakes

SECRET = "four-kidneys-please"
PATH = "/srv/tristage/python_backends/think/model.py"
FAULTS: tuple[Callable[[], Exception], ...] = (
    lambda: ValueError(f"invalid literal for int(): '{SECRET}' in {PATH}"),
    lambda: KeyError(SECRET),
    lambda: OSError(2, "No such file or directory", f"{PATH}.{SECRET}"),
    lambda: UnicodeEncodeError("ascii", SECRET, 0, 4, SECRET),
)
TRITON = f"""Failed to process the request(s) for model instance 'think_0_0', message: KeyError: 'x'

At:
  {PATH}(12): execute
"""


def logged() -> str:
    return "\n".join(line for _, line in fakes.Logger.lines)


def raising(fault: Callable[[], Exception]) -> None:
    """Behind another fault, whose words count as little."""
    try:
        raise fault()
    except Exception as inner:
        raise RuntimeError(f"while doing {SECRET}") from inner


class Failing(StageBackend):
    """A stage whose loop does not survive a request."""

    def __init__(self, fault: Callable[[], Exception]) -> None:
        self.fault = fault

    def make_loop(self, config: ModelConfig) -> "Failing":
        return self

    def run(self, inbox: Inbox) -> None:
        for _ in inbox.take(None):
            if self._closing:
                return
            raising(self.fault)


class FailingPlain(PlainBackend):
    def __init__(self, fault: Callable[[], Exception]) -> None:
        self.fault = fault

    def load(self, config: ModelConfig) -> None:
        pass

    def serve(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        raising(self.fault)
        return {}


@pytest.mark.parametrize("fault", FAULTS)
def test_whoever_is_open_when_a_loop_fails_hears_nothing_of_why(
    fault: Callable[[], Exception],
) -> None:
    stage = Failing(fault)
    stage.initialize(fakes.model_args("think", {}))
    asked = [fakes.arriving({"X": np.ones((1, 1), np.float32)}, request_id=t) for t in "ab"]
    stage.execute(asked)
    errors = [one.sender.error() for one in asked]
    stage.finalize()
    for error in errors:
        assert "code=STAGE_FAILED stage=think" in error
        assert SECRET not in error
        assert "/" not in error
    assert SECRET not in logged()
    assert "in raising" in logged(), "where it happened is for the log"
    assert type(fault()).__name__ in logged()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_model_that_answers_at_once_is_as_discreet(fault: Callable[[], Exception]) -> None:
    model = FailingPlain(fault)
    model.initialize(fakes.model_args("think_step", {}))
    [answer] = model.execute([fakes.arriving({}, request_id="a")])
    assert SECRET not in answer.error().message()
    assert "/" not in answer.error().message()
    assert SECRET not in logged()


@pytest.mark.parametrize("fault", FAULTS)
def test_features_that_cannot_be_made_are_as_discreet(fault: Callable[[], Exception]) -> None:
    error = _failed_build(fault())
    assert SECRET not in error.to_wire()
    assert SECRET not in logged()


def test_a_text_that_cannot_be_read_is_as_discreet() -> None:
    def read(line: str) -> list[str]:
        raise KeyError(line)

    task: Any = SimpleNamespace(_limit=300, _phonemes=read)
    with pytest.raises(StageFailed) as failed:
        intone.Intone._read(task, SECRET)
    assert SECRET not in failed.value.to_wire()
    assert SECRET not in logged()


def test_a_graph_that_fails_tells_no_path() -> None:
    class Session:
        def run_with_iobinding(self, binding: object) -> None:
            raise RuntimeError(f"[ONNXRuntimeError] : 6 : {PATH}:120 Run\nnode 'Add_7' failed")

    key = (0, 1, 1, 8)
    graph: Any = SimpleNamespace(
        _session=Session(),
        _draws=[True],
        _bindings={key: None},
        pools=SimpleNamespace(context=SimpleNamespace(width_of=lambda *_: 8)),
    )
    with pytest.raises(StageFailed) as failed:
        BoundGraph.execute(graph, *key[:3])
    assert PATH not in failed.value.to_wire()
    assert "node 'Add_7' failed" in failed.value.to_wire()


def test_what_a_server_says_is_passed_on_without_its_traceback() -> None:
    error = from_text(TRITON, stage="think")
    assert error.message.endswith("message: KeyError: 'x'")
    assert "/" not in error.to_wire()


def test_words_of_a_fault_are_logged_when_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log_fault("a text could not be read", KeyError(SECRET))
    assert SECRET not in logged()
    assert LOG_TEXT in logged()
    monkeypatch.setenv(LOG_TEXT, "1")
    log_fault("a text could not be read", KeyError(SECRET))
    assert SECRET in logged()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"cannot open {PATH}: gone", "cannot open <path>: gone"),
        ("see '~/models/a.onnx' or ../b/c", "see '<path>' or <path>"),
        ("steps is 99; 0 to 32 is accepted", "steps is 99; 0 to 32 is accepted"),
        ("12 tokens/s, and/or 3/4 of it", "12 tokens/s, and/or 3/4 of it"),
        ('it is {"role": ..., "text": ...}', 'it is {"role": ..., "text": ...}'),
        ("bad\nTraceback (most recent call last):\n  x", "bad"),
        ('bad File "/a/b.py", line 3', "bad"),
    ],
)
def test_what_is_told_is_one_line_without_paths(text: str, shown: str) -> None:
    assert told(text) == shown


def test_what_is_told_is_bounded_and_found_at_once() -> None:
    for long in ("/a" * 10**6, "x" * 10**6, "At: " * 10**6, "\n" * 10**6, "./" * 10**6):
        assert len(told(long)) < 700
        assert len(InvalidInput(long).to_wire()) < 900


def test_every_kind_of_error_is_told_so() -> None:
    for kind in StageError.__subclasses__():
        assert Path(PATH).name not in kind(f"at {PATH}").to_wire()
