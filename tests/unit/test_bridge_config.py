"""A model's parameters are read strictly, and its queue is the only one."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from python_backends.bridge import ModelConfig
from tests import fakes


@dataclass(frozen=True)
class Settings:
    step_model: str
    slots: int
    window_ms: float = 6.0
    solver_hint: str = "midpoint"
    verbose: bool = False
    names: str = field(default_factory=str)


def config(**parameters: str) -> ModelConfig:
    return ModelConfig.from_args(fakes.model_args("think", parameters, inputs=["HEARD"]))


def test_parameters_become_typed_settings() -> None:
    read = config(step_model="s", slots="8", window_ms="2.5", verbose="true").settings(Settings)
    assert read == Settings("s", 8, 2.5, "midpoint", True)


def test_defaults_stand_in_for_what_is_left_out() -> None:
    assert config(step_model="s", slots="8").settings(Settings) == Settings("s", 8)


def test_unknown_and_missing_keys_are_listed_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown \['slot'\], missing \['slots'\].*step_model"):
        config(step_model="s", slot="8").settings(Settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slots", "eight"),
        ("slots", "8.0"),
        ("slots", ""),
        ("window_ms", "nan"),
        ("window_ms", "inf"),
        ("window_ms", "fast"),
        ("verbose", "True"),
        ("verbose", "1"),
        ("verbose", ""),
    ],
)
def test_a_value_that_cannot_be_read_is_named(name: str, value: str) -> None:
    parameters = {"step_model": "s", "slots": "8", name: value}
    with pytest.raises(ValueError, match=f"parameter '{name}' is '{value}'"):
        config(**parameters).settings(Settings)


def test_settings_without_fields_accept_no_parameters() -> None:
    @dataclass(frozen=True)
    class Nothing:
        pass

    assert config().settings(Nothing) == Nothing()
    with pytest.raises(ValueError, match="unknown"):
        config(slots="8").settings(Nothing)


@pytest.mark.parametrize("instances", [0, 2])
def test_any_number_of_instances_but_one_is_refused(instances: int) -> None:
    """Public case F12."""
    with pytest.raises(ValueError, match="instance_group count must be 1"):
        ModelConfig.from_args(fakes.model_args("think", {}, instances=instances))


def test_two_instance_groups_are_two_instances() -> None:
    args = fakes.model_args("think", {})
    described = json.loads(args["model_config"])
    described["instance_group"] *= 2
    args["model_config"] = json.dumps(described)
    with pytest.raises(ValueError, match="not 2"):
        ModelConfig.from_args(args)


def test_artefacts_are_found_in_ones_own_folder_and_in_a_neighbours() -> None:
    found = config()
    assert found.inputs == ("HEARD",)
    assert found.artefact("a.json") == Path("/repository/think/1/a.json")
    assert found.artefact("b.onnx", model="step") == Path("/repository/step/1/b.onnx")
