"""README and ARCHITECTURE name what there is, with the bounds there are."""

import re
from dataclasses import fields

from python_backends.bridge import Options
from python_backends.errors import StageError
from tests.repository.configs import ROOT, configs, ensembles, folders, own, parameters

README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()


def code_in_readme(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_raw_call_is_short_and_compiles() -> None:
    call = code_in_readme("python")
    compile(call, "README.md", "exec")
    assert len(call.splitlines()) <= 25


def test_every_request_parameter_is_documented_with_its_default() -> None:
    for field in fields(Options):
        row = next(line for line in README.splitlines() if f"`{field.name}`" in line)
        if field.default not in ("", 0, True, ()):
            shown = f"`{field.default}`" if isinstance(field.default, str) else f"{field.default:g}"
            assert f"| {shown} |" in row, field.name
    steps, solver = (parameters("acoustic")[key] for key in ("steps", "solver"))
    assert f"| {steps}, `{solver}` |" in README


def test_every_tensor_of_a_turn_is_documented() -> None:
    turn = configs()["turn"]
    for tensor in [*turn.input, *turn.output]:
        assert f"`{tensor.name}`" in README


def test_every_error_code_is_documented() -> None:
    for kind in StageError.__subclasses__():
        assert f"| `{kind.code}` |" in README


def test_the_command_for_stock_images_loads_all_that_is_needed() -> None:
    """An ensemble brings its steps; what a stage calls by itself must be named."""
    named = set(re.findall(r"--load-model=(\w+)", README))
    assert named <= folders().keys()
    loaded = named | {
        step.model_name
        for name in named & set(ensembles())
        for step in configs()[name].ensemble_scheduling.step
    }
    for name in loaded & set(own()):
        for key, model in parameters(name).items():
            in_process = parameters(name).get("engine") == "in_process" and key == "step_model"
            if (key.endswith("_model") or key == "ensemble") and not in_process:
                assert model in loaded, f"{name} calls {model}"
    assert "for b in python_backends/*/model.py; do cp -r" in README


def test_the_architecture_is_short_and_names_every_model_and_folder() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 80
    for name in folders():
        assert f"`{name}`" in ARCHITECTURE or (
            name.endswith("_step") and "`*_step`" in ARCHITECTURE
        )
    for folder in (
        "build",
        "client",
        "deploy",
        "ensemble",
        "loadtest",
        "model_repository",
        "tests",
    ):
        assert f"`{folder}/`" in ARCHITECTURE
