"""The emulated repository obeys the laws of the product's, and its profile's figures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadtest.device import Profile
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import ModelConfig, plugin
from python_backends.diffusion_lock.settings import AcousticSettings
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.front_door.settings import DoorSettings
from python_backends.live_call.settings import LiveSettings
from tests.fakes import model_args
from tests.repository import test_ensembles as laws
from tests.repository.configs import ROOT, kind, parse

REPOSITORY = ROOT / "loadtest" / "emulated"
CONFIGS = {path.parent.name: parse(path) for path in sorted(REPOSITORY.glob("*/config.pbtxt"))}
ENSEMBLES = [name for name, config in CONFIGS.items() if config.platform == "ensemble"]
MODELS = [name for name in CONFIGS if name not in ENSEMBLES]
SETTINGS: dict[str, type[Any]] = {
    "ar_loop": LoopSettings,
    "diffusion_lock": AcousticSettings,
    "encoder_window": EncodeSettings,
    "front_door": DoorSettings,
    "live_call": LiveSettings,
}
NAMED: dict[str, tuple[str, ...]] = {
    "ar_loop": ("task", "engine"),
    "front_door": (),
    "live_call": (),
}
"""Settings that name a leaf; the last two have none, but call models that have."""

LAWS = [
    laws.test_steps_name_models_tensors_and_any_version,
    laws.test_every_input_that_a_step_requires_is_mapped,
    laws.test_every_tensor_is_made_once_before_it_is_used,
    laws.test_nothing_is_made_or_taken_in_for_nobody,
    laws.test_producers_and_consumers_agree_on_types,
    laws.test_every_step_takes_its_inputs_from_one_decoupled_step,
    laws.test_steps_behind_a_decoupled_one_keep_the_order,
]


def settings(name: str) -> Any:
    parameters = {key: one.string_value for key, one in CONFIGS[name].parameters.items()}
    return ModelConfig.from_args(model_args(name, parameters)).settings(
        SETTINGS[CONFIGS[name].backend]
    )


@pytest.mark.parametrize("name", ENSEMBLES)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_ensembles_are_wired_as_the_product_s_are(
    name: str, law: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laws, "configs", lambda: CONFIGS)
    law(name)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_model_says_that_it_is_emulated(name: str) -> None:
    first_line = (REPOSITORY / name / "config.pbtxt").read_text().splitlines()[0]
    assert first_line.startswith("# Emulated:")
    assert CONFIGS[name].name == name
    assert Path(REPOSITORY / name / "1" / ".gitkeep").exists()


@pytest.mark.parametrize("name", MODELS)
def test_models_are_the_product_s_backends_with_other_leaves(name: str) -> None:
    config, found = CONFIGS[name], settings(name)
    assert [group.count for group in config.instance_group] == [1]
    assert all(tensor.optional for tensor in config.input)
    assert kind(config.input[-1]) == ("TYPE_STRING", (1,))
    named = NAMED.get(config.backend, ("leaf",))
    for path in (getattr(found, name) for name in named):
        assert path.startswith("loadtest.emulated.leaves.")
        assert callable(plugin.load(path))


def test_limits_are_those_of_the_profiles() -> None:
    seed, diffusion = Profile.named("profile"), Profile.named("profile-diffusion")
    for profile in (seed, diffusion):
        listen = profile.stages["listen"]
        assert settings("emu_listen").max_batch == listen.max_batch
        assert settings("emu_listen").window_ms == listen.window_ms
        assert settings("emu_think").slots == profile.stages["think"].max_batch
        assert settings("emu_think").capacity > profile.stages["think"].steps
    assert settings("emu_speak").slots == seed.stages["speak"].max_batch
    assert settings("emu_speak").capacity > seed.stages["speak"].steps
    acoustic = diffusion.stages["acoustic"]
    assert settings("emu_acoustic").max_batch == acoustic.max_batch
    assert settings("emu_acoustic").steps == acoustic.steps
    assert settings("emu_vocoder").max_batch == diffusion.stages["vocoder"].max_batch
