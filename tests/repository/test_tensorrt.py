"""configs/tensorrt.pbtxt serve the same models on a GPU, from the engines that the build makes."""

from typing import Any

import pytest

from build.tensorrt import profiles, record
from build.tensorrt.recipes import RECIPES, open_inputs
from tests.repository.configs import configs, folders, models, of_backend, parameters, parse

CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
"""Turing to Blackwell: GPUs that the image in deploy/docker supports."""

SERVED = [recipe.model for recipe in RECIPES.values() if not recipe.steps]
STEPS = [recipe.model for recipe in RECIPES.values() if recipe.steps]
ON_CPU = {"intra_op_thread_count", "inter_op_thread_count"}


def on_gpu(name: str) -> Any:
    return parse(folders()[name] / "configs" / "tensorrt.pbtxt")


def test_every_native_model_has_one_but_the_vad_that_nobody_calls_in_batches() -> None:
    found = {name for name in models() if (folders()[name] / "configs/tensorrt.pbtxt").exists()}
    assert found == {*SERVED, *STEPS}
    assert set(of_backend("onnxruntime")) - found == {"vad"}


@pytest.mark.parametrize("name", SERVED)
def test_it_batches_as_the_default_config_and_takes_one_gpu_instance(name: str) -> None:
    ours, theirs = configs()[name], on_gpu(name)
    assert theirs.backend == "tensorrt"
    assert theirs.max_batch_size == ours.max_batch_size
    assert theirs.dynamic_batching == ours.dynamic_batching
    [group] = theirs.instance_group
    assert (group.kind, group.count) == (group.KIND_GPU, 1)
    assert set(parameters(name)) - set(theirs.parameters) == ON_CPU
    assert set(theirs.parameters) <= set(parameters(name))


@pytest.mark.parametrize("name", SERVED)
def test_it_names_the_engine_of_each_gpu_as_the_build_does(name: str) -> None:
    named = dict(on_gpu(name).cc_model_filenames)
    assert named == {one: record.engine_name(one) for one in CAPABILITIES}
    assert on_gpu(name).default_model_filename not in named.values()


@pytest.mark.parametrize("name", SERVED)
def test_engines_are_built_for_every_batch_that_it_may_be_sent(name: str) -> None:
    recipe = RECIPES[name]
    [profile] = recipe.profiles(open_inputs(recipe.graph_path))
    profiles.check(on_gpu(name), profile)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_model_changes_its_runtime_and_what_its_weights_take(name: str) -> None:
    """Everything else is the default config's: pool, tensors, backend."""
    ours, theirs = configs()[name], on_gpu(name)
    assert theirs.backend == ours.backend == "slot_engine"
    given = {key: value.string_value for key, value in theirs.parameters.items()}
    differ = {key for key, value in given.items() if value != parameters(name)[key]}
    assert given.keys() == parameters(name).keys()
    assert differ == {"runtime", "bytes_weights"}
    assert given["runtime"] == "tensorrt"


@pytest.mark.parametrize("name", of_backend("ar_loop"))
def test_a_loop_is_told_its_runtime_by_whoever_starts_the_server(name: str) -> None:
    """`--model-config-name=tensorrt` alone must not ask for engines that TensorRT 10.8 lacks."""
    assert not (folders()[name] / "configs" / "tensorrt.pbtxt").exists()
    assert parameters(name)["runtime"] == "onnxruntime"
    assert parameters(name)["device"] == "cuda"
