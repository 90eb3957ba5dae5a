"""The wiring of every ensemble: what is mapped exists, fits, and comes from one decoupled step."""

from typing import Any

import pytest

from tests.repository.configs import configs, ensembles, kind

Origin = str | None
"""The decoupled step whose responses a tensor belongs to; None before any."""


def steps(name: str) -> list[Any]:
    return list(configs()[name].ensemble_scheduling.step)


def tensors(config: Any, side: str) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in getattr(config, side)}


def kinds(name: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type of every tensor inside an ensemble, from its inputs and its steps' outputs."""
    found = {one.name: kind(one) for one in configs()[name].input}
    for step in steps(name):
        outputs = tensors(configs()[step.model_name], "output")
        found |= {value: kind(outputs[key]) for key, value in step.output_map.items()}
    return found


@pytest.mark.parametrize("name", ensembles())
def test_steps_name_models_tensors_and_any_version(name: str) -> None:
    for step in steps(name):
        config = configs()[step.model_name]
        assert step.model_version == -1
        assert set(step.input_map) <= tensors(config, "input").keys(), step.model_name
        assert set(step.output_map) <= tensors(config, "output").keys(), step.model_name
        assert config.max_batch_size >= configs()[name].max_batch_size


@pytest.mark.parametrize("name", ensembles())
def test_every_input_that_a_step_requires_is_mapped(name: str) -> None:
    optional = {one.name for one in configs()[name].input if one.optional}
    for step in steps(name):
        for key, tensor in tensors(configs()[step.model_name], "input").items():
            assert tensor.optional or key in step.input_map, f"{step.model_name} lacks {key}"
            if step.input_map.get(key) in optional:
                assert tensor.optional, f"{step.model_name} may be left without {key}"


@pytest.mark.parametrize("name", ensembles())
def test_every_tensor_is_made_once_before_it_is_used(name: str) -> None:
    made = [one.name for one in configs()[name].input]
    for step in steps(name):
        assert set(step.input_map.values()) <= set(made), step.model_name
        made += step.output_map.values()
    assert len(made) == len(set(made))


@pytest.mark.parametrize("name", ensembles())
def test_nothing_is_made_or_taken_in_for_nobody(name: str) -> None:
    used = {one.name for one in configs()[name].output}
    for step in steps(name):
        used |= set(step.input_map.values())
    assert used == kinds(name).keys()


@pytest.mark.parametrize("name", ensembles())
def test_producers_and_consumers_agree_on_types(name: str) -> None:
    made = kinds(name)
    for step in steps(name):
        inputs = tensors(configs()[step.model_name], "input")
        for key, value in step.input_map.items():
            assert kind(inputs[key]) == made[value], f"{step.model_name}.{key}"
    for output in configs()[name].output:
        assert kind(output) == made[output.name], output.name


@pytest.mark.parametrize("name", ensembles())
def test_every_step_takes_its_inputs_from_one_decoupled_step(name: str) -> None:
    """Else Triton refuses to load it: responses of two origins cannot be paired. The same holds for
    an ensemble input behind a decoupled step."""
    origin: dict[str, Origin] = {one.name: None for one in configs()[name].input}
    for step in steps(name):
        sources = {origin[value] for value in step.input_map.values()}
        assert len(sources) == 1, f"{step.model_name} takes inputs of {sources}"
        decoupled = configs()[step.model_name].model_transaction_policy.decoupled
        source = step.model_name if decoupled else sources.pop()
        origin |= dict.fromkeys(step.output_map.values(), source)
    assert len({origin[one.name] for one in configs()[name].output}) == 1


@pytest.mark.parametrize("name", ensembles())
def test_steps_behind_a_decoupled_one_keep_the_order(name: str) -> None:
    """One instance, or preserve_ordering; two instances would let responses overtake each other."""
    behind = False
    for step in steps(name):
        config = configs()[step.model_name]
        if behind:
            one = sum(group.count for group in config.instance_group) == 1
            assert config.dynamic_batching.preserve_ordering or one, step.model_name
        behind |= config.model_transaction_policy.decoupled
