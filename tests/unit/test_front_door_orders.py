"""What the front door answers when it is asked which turns are here."""

import json

import pytest

from python_backends.bridge import ModelConfig
from python_backends.front_door import model as door
from python_backends.front_door.model import TritonPythonModel
from tests import fakes

PIDS = {"alone": [("turn", 7)], "with the one before": [("turn", 7), ("turn", 8)]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> TritonPythonModel:
    model = TritonPythonModel()
    model._config = ModelConfig.from_args(fakes.model_args("turn", {}))
    monkeypatch.setattr(model, "open_turns", lambda: {"a", "b"})
    monkeypatch.setattr(door, "stubs", lambda server, models: PIDS["alone"])
    return model


def test_turns_that_are_not_here_are_gone(asked: TritonPythonModel) -> None:
    answer = asked.obey({"open": ["a", "x", "b", "y"]})
    assert answer is not None
    assert answer["EVENTS"].shape == (1, 1)
    assert json.loads(answer["EVENTS"].item()) == {"gone": ["x", "y"]}


def test_who_are_all_here_are_acknowledged(asked: TritonPythonModel) -> None:
    assert asked.obey({"open": ["a"]}) == {}
    assert asked.obey({"open": []}) == {}


def test_while_another_process_serves_the_model_nobody_is_gone(
    asked: TritonPythonModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is loaded again is served by two for a while."""
    monkeypatch.setattr(door, "stubs", lambda server, models: PIDS["with the one before"])
    assert asked.obey({"open": ["x"]}) == {}


@pytest.mark.parametrize("order", [{"open": "a"}, {"open": [1]}, {"open": None}, {"opened": []}])
def test_any_other_order_is_none_of_the_doors(asked: TritonPythonModel, order: object) -> None:
    assert asked.obey(order) is None
