"""Which models are loaded, and what a run sees of them."""

from pathlib import Path

import pytest

from deploy.errors import RepositoryError
from deploy.repositories import Overrides, mirror, read_models, to_load
from deploy.settings import REPOSITORIES


def model(repository: Path, name: str, parameters: dict[str, str], text: str = "") -> None:
    """A folder with a config.pbtxt and a version."""
    (repository / name / "1").mkdir(parents=True)
    lines = [f'name: "{name}"', text]
    for key, value in parameters.items():
        lines.append(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}  # why {key}'
        )
    (repository / name / "config.pbtxt").write_text("\n".join(lines))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = tmp_path / "models"
    model(repository, "step", {})
    model(repository, "encoder", {})
    model(repository, "loop", {"step_model": "step", "engine": "bls"})
    model(repository, "window", {"encoder_model": "encoder"})
    step = "{ model_name: '%s' model_version: -1 }"
    steps = ", ".join(step % name for name in ("window", "loop"))
    model(
        repository, "chain", {}, f"platform: 'ensemble' ensemble_scheduling {{ step [ {steps} ] }}"
    )
    model(repository, "door", {"ensemble": "chain"})
    return repository


def loaded(
    repository: Path, roots: list[str] | None, overrides: Overrides | None = None
) -> set[str]:
    return set(to_load(read_models([repository], overrides or {}), roots))


def test_a_front_door_brings_its_ensemble_its_steps_and_their_children(repository: Path) -> None:
    everything = {"door", "chain", "loop", "step", "window", "encoder"}
    assert loaded(repository, ["door"]) == everything
    assert loaded(repository, None) == everything


def test_a_model_brings_only_what_it_calls(repository: Path) -> None:
    assert loaded(repository, ["window"]) == {"window", "encoder"}


def test_an_engine_opened_in_process_is_not_loaded_besides(repository: Path) -> None:
    inside = {"loop": {"engine": "in_process"}}
    assert loaded(repository, ["loop"], inside) == {"loop"}
    assert "step" not in loaded(repository, None, inside)
    assert "step" in loaded(repository, ["loop", "step"], inside)


def test_an_engine_that_nobody_names_is_not_loaded(repository: Path) -> None:
    model(repository, "engine", {}, "backend: 'slot_engine'")
    assert "engine" not in loaded(repository, None)
    assert "engine" in loaded(repository, ["engine"])


def test_a_config_that_no_model_has_is_refused(repository: Path) -> None:
    with pytest.raises(RepositoryError, match=r"no model has a configs/servd\.pbtxt"):
        read_models([repository], {}, "servd")


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"lop": {"engine": "bls"}}, "no model 'lop'; known: chain, door"),
        ({"loop": {"engin": "bls"}}, "no parameter 'engin'; known: engine, step_model"),
    ],
)
def test_overrides_of_what_does_not_exist_are_refused(
    repository: Path, overrides: dict[str, dict[str, str]], reason: str
) -> None:
    with pytest.raises(RepositoryError, match=reason):
        read_models([repository], overrides)


def test_an_unknown_model_to_load_is_refused(repository: Path) -> None:
    with pytest.raises(RepositoryError, match="no model 'lamp'"):
        loaded(repository, ["lamp"])


def test_a_name_in_two_repositories_is_refused(repository: Path, tmp_path: Path) -> None:
    model(tmp_path / "more", "loop", {})
    with pytest.raises(RepositoryError, match="two models are named 'loop'"):
        read_models([repository, tmp_path / "more"], {})


def test_a_users_own_models_replace_others_of_the_same_name(
    repository: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    model(own, "loop", {"step_model": "mine", "engine": "bls"})
    model(own, "mine", {"depth": "2"})
    models = read_models([repository], {"mine": {"depth": "3"}}, own=[own])
    assert (models["loop"].folder, models["mine"].parameters) == (own / "loop", {"depth": "3"})
    assert set(to_load(models, ["door"])) == {"door", "chain", "loop", "mine", "window", "encoder"}
    views = mirror(models.values(), tmp_path / "view", {"mine"})
    assert read_models(views, {})["loop"].calls == {"mine"}
    with pytest.raises(RepositoryError, match=r"no model in .*nothing"):
        read_models([repository], {}, own=[tmp_path / "nothing"])


def test_a_broken_config_is_named(repository: Path) -> None:
    (repository / "loop" / "config.pbtxt").write_text("name: loop {")
    with pytest.raises(RepositoryError, match=r"loop/config\.pbtxt"):
        read_models([repository], {})


def test_a_run_sees_models_by_symlink_and_no_stray_folder(repository: Path, tmp_path: Path) -> None:
    (repository / "__pycache__").mkdir()
    models = read_models([repository], {})
    (view,) = mirror(models.values(), tmp_path / "run")
    assert {path.name for path in view.iterdir()} == set(models)
    assert (view / "loop").resolve() == repository / "loop"


def test_an_overridden_model_has_its_own_config_and_the_same_artefacts(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "loop" / "1" / "model.onnx").write_text("weights")
    overrides = {"loop": {"engine": "in_process"}}
    models = read_models([repository], overrides)
    (view,) = mirror(models.values(), tmp_path / "run", overrides)
    assert read_models([view], {})["loop"].parameters["engine"] == "in_process"
    assert read_models([repository], {})["loop"].parameters["engine"] == "bls"
    assert (view / "loop" / "1" / "model.onnx").read_text() == "weights"
    assert (view / "loop" / "1").resolve() == repository / "loop" / "1"


def test_a_named_config_takes_the_place_of_the_usual_one(repository: Path, tmp_path: Path) -> None:
    other = repository / "loop" / "configs" / "other.pbtxt"
    other.parent.mkdir()
    usual = (repository / "loop" / "config.pbtxt").read_text()
    other.write_text(usual.replace('"bls"', '"in_process"'))
    overrides = {"loop": {"step_model": "encoder"}}
    models = read_models([repository], overrides, "other")
    (view,) = mirror(models.values(), tmp_path / "run", overrides)
    seen = read_models([view], {}, "other")["loop"].parameters
    assert seen == {"engine": "in_process", "step_model": "encoder"}
    assert read_models([view], {})["loop"].parameters["engine"] == "bls"


def test_every_model_of_this_project_can_be_found() -> None:
    names = to_load(read_models(REPOSITORIES, {}))
    assert {"turn", "voice_turn", "transcribe", "speak", "think", "vad"} <= set(names)


def test_with_an_llm_that_is_served_elsewhere_only_think_is_another_one() -> None:
    usual, served = (read_models(REPOSITORIES, {}, name) for name in (None, "served"))
    assert to_load(served) == to_load(usual)
    assert served["think"].config.backend == "served_llm"
    assert "think_step" not in to_load(served)
