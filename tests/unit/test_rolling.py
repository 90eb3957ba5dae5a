"""Upgrades: what may happen to two versions, what a version consists of, and who goes where."""

import json
from pathlib import Path
from random import Random

import pytest

from deploy.errors import RepositoryError, UpgradeFailed, UpgradeRefused
from deploy.repositories import Model, place, read_models
from deploy.rolling.policy import Phase, Recall, Seen, Trial, Upgrade
from deploy.rolling.sources import (
    Version,
    as_started,
    of_folder,
    of_number,
    refuse_others_callers,
)
from deploy.settings import REPOSITORIES
from python_backends.versions import Serving, model_of, stage_of, version_of
from python_backends.walking.versions import Versions
from tests.unit.rolling_world import copies


def test_a_version_is_loaded_shadows_serves_and_the_one_before_is_drained() -> None:
    upgrade = Upgrade(1, 2)
    assert upgrade.serving == 1
    upgrade.loaded()
    assert (upgrade.phases[2], upgrade.serving) == (Phase.SHADOW, 1)
    upgrade.switched()
    assert (upgrade.serving, upgrade.draining) == (2, 1)
    upgrade.drained()
    assert upgrade.over
    assert upgrade.phases == {1: Phase.GONE, 2: Phase.SERVING}


@pytest.mark.parametrize("loaded", [False, True])
def test_one_that_fails_before_the_switch_is_gone_at_once(loaded: bool) -> None:
    upgrade = Upgrade(1, 2)
    if loaded:
        upgrade.loaded()
    assert not upgrade.failed()
    assert upgrade.phases == {1: Phase.SERVING, 2: Phase.GONE}


def test_one_that_fails_behind_the_switch_ends_its_turns() -> None:
    upgrade = Upgrade(1, 2)
    upgrade.loaded()
    upgrade.switched()
    assert upgrade.failed()
    assert (upgrade.serving, upgrade.draining) == (1, 2)
    upgrade.drained()
    assert upgrade.phases == {1: Phase.SERVING, 2: Phase.GONE}


def test_whatever_is_told_one_version_serves() -> None:
    for seed in range(200):
        random, upgrade = Random(seed), Upgrade(1, 2)
        events = (upgrade.loaded, upgrade.switched, upgrade.failed, upgrade.drained)
        for _ in range(8):
            before = dict(upgrade.phases)
            try:
                random.choice(events)()
            except ValueError:
                assert upgrade.phases == before
            assert list(upgrade.phases.values()).count(Phase.SERVING) == 1


NONE = Seen(0, 0, alive=True)
PATIENCE_S = 30.0


def test_a_trial_is_stood_when_its_time_is_over() -> None:
    trial = Trial(10.0, 5.0, NONE, PATIENCE_S)
    assert not trial.stays(14.9, Seen(100, 0, alive=True))
    assert trial.stays(15.0, Seen(0, 0, alive=True))


def test_one_failure_may_be_chance_and_more_are_not() -> None:
    trial = Trial(0.0, 5.0, NONE, PATIENCE_S)
    assert trial.stays(6.0, Seen(3, 1, alive=True))
    with pytest.raises(UpgradeFailed, match="2 of its first 5 requests failed"):
        trial.stays(1.0, Seen(3, 2, alive=True))
    assert trial.stays(6.0, Seen(98, 2, alive=True))


def test_what_a_process_before_it_failed_at_is_not_held_against_a_version() -> None:
    trial = Trial(0.0, 5.0, Seen(10, 7, alive=True), PATIENCE_S)
    assert trial.stays(6.0, Seen(13, 8, alive=True))
    with pytest.raises(UpgradeFailed, match="2 of its first 5 requests failed"):
        trial.stays(1.0, Seen(13, 9, alive=True))


def test_a_process_that_ended_ends_the_trial() -> None:
    with pytest.raises(UpgradeFailed, match="process has ended"):
        Trial(0.0, 5.0, NONE, PATIENCE_S).stays(9.0, Seen(9, 0, alive=False))


def test_one_that_answers_nothing_stays_on_trial_and_then_fails() -> None:
    trial = Trial(0.0, 5.0, NONE, PATIENCE_S)
    assert not trial.stays(6.0, Seen(0, 0, alive=True, open=3))
    assert not trial.stays(29.9, Seen(0, 0, alive=True, open=0, unanswered=3))
    with pytest.raises(UpgradeFailed, match="nothing for 30 s: 0 requests are open, 3 ended un"):
        trial.stays(30.0, Seen(0, 0, alive=True, open=0, unanswered=3))


def test_one_that_answers_late_has_stood_its_trial_then() -> None:
    trial = Trial(0.0, 5.0, NONE, PATIENCE_S)
    assert not trial.stays(20.0, Seen(0, 0, alive=True, open=3))
    assert trial.stays(21.0, Seen(0, 0, alive=True, open=3, moved=1))


def test_one_that_has_answered_and_then_hangs_fails() -> None:
    trial = Trial(0.0, 5.0, NONE, PATIENCE_S)
    assert not trial.stays(3.0, Seen(40, 0, alive=True, moved=41, open=8))
    assert not trial.stays(5.0, Seen(40, 0, alive=True, moved=41, open=8))
    assert not trial.stays(32.9, Seen(40, 0, alive=True, moved=41, open=64, unanswered=900))
    with pytest.raises(UpgradeFailed, match="it has answered nothing for 30 s"):
        trial.stays(33.0, Seen(40, 0, alive=True, moved=41, open=64, unanswered=900))


def test_one_that_nobody_asks_or_a_caller_leaves_has_not_failed() -> None:
    trial = Trial(0.0, 5.0, NONE, PATIENCE_S)
    assert trial.stays(40.0, NONE)
    assert trial.stays(80.0, Seen(0, 0, alive=True, unanswered=1))
    assert trial.stays(120.0, Seen(7, 0, alive=True, unanswered=9, moved=16))


def test_it_is_called_off_or_has_settled() -> None:
    one, other = Recall(), Recall()
    assert one.call_off()
    for refused in (one.refuse, one.settle):
        with pytest.raises(UpgradeFailed, match="it was called off"):
            refused()
    other.settle()
    assert not other.call_off()
    other.refuse()


def test_a_model_tells_its_stage_and_version() -> None:
    assert stage_of(model_of("think", 12)) == "think"
    assert version_of(model_of("think", 12)) == "12"
    assert (stage_of("asr_decode"), version_of("asr_decode")) == ("asr_decode", "")
    assert stage_of("odd.vx") == "odd.vx"


def test_a_turn_keeps_what_served_when_it_began(tmp_path: Path) -> None:
    file = tmp_path / "versions.json"
    Serving().write(file)
    versions = Versions(file)
    with versions.pinned() as old:
        Serving(1, {"think": "think.v2", "acoustic": "acoustic.v2"}).write(file)
        with versions.pinned() as new:
            assert old.names(["think", "vocoder"]) == ("think", "vocoder")
            assert new.names(["think", "acoustic"]) == ("think.v2", "acoustic.v2")
            assert versions.in_use(["think", "vocoder"]) == {"think", "think.v2", "vocoder"}
            assert epochs(versions) == {"0": 1, "1": 1}
    assert epochs(versions) == {}
    assert versions.in_use(["think"]) == {"think.v2"}


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "versions.json"
    Serving(3, {"think": "think.v2"}).write(file)
    versions = Versions(file)
    assert versions.in_use(["think"]) == {"think.v2"}
    for text in ("{", "[]", '{"epoch": "x", "models": {}}'):
        file.write_text(text)
        assert versions.in_use(["think"]) == {"think.v2"}
    file.unlink()
    assert versions.in_use(["think"]) == {"think.v2"}
    assert Versions(None).in_use(["think"]) == {"think"}


def epochs(versions: Versions) -> dict[str, int]:
    found: dict[str, int] = json.loads(versions.told()["EVENTS"].flat[0])["epochs"]
    return found


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return read_models(REPOSITORIES, {})


def started(stage: str, models: dict[str, Model]) -> Version:
    return as_started(stage, models, ["voice_turn"])


def test_a_stage_brings_what_it_opens_and_calls(models: dict[str, Model]) -> None:
    think, acoustic = started("think", models), started("acoustic", models)
    assert (set(think.models), think.loads) == ({"think", "think_step"}, ["think"])
    assert acoustic.loads == ["acoustic_condition", "acoustic_step", "acoustic"]
    beside = acoustic.beside()
    assert beside["acoustic.v1"].parameters["step_model"] == "acoustic_step.v1"
    assert beside["acoustic.v1"].parameters["condition_model"] == "acoustic_condition.v1"


def test_stages_that_come_together_call_each_other(models: dict[str, Model]) -> None:
    """asr_decode has doubtful windows encoded again."""
    encode, decode = started("encode", models), started("asr_decode", models)
    assert decode.beside()["asr_decode.v1"].parameters["encode_model"] == "encode"
    beside = decode.beside(encode.names)["asr_decode.v1"]
    assert beside.parameters["encode_model"] == "encode.v1"


@pytest.mark.parametrize("name", ["turn", "think_step", "asr_encoder", "vad"])
def test_what_is_no_stage_of_turns_is_refused(name: str, models: dict[str, Model]) -> None:
    with pytest.raises(UpgradeRefused, match="is not a stage of turns"):
        started(name, models)


def test_a_name_that_nobody_has_is_refused(models: dict[str, Model]) -> None:
    with pytest.raises(RepositoryError, match="no model 'thinks'"):
        started("thinks", models)


def test_a_version_folder_may_be_that_of_a_model_behind_the_stage(tmp_path: Path) -> None:
    models = copies(tmp_path / "repository")
    (models["think_step"].folder / "2").mkdir()
    now = started("think", models)
    new = of_number(now, 2, models)
    assert new.models["think_step"].version_folder.name == "2"
    assert new.models["think"].version_folder.name == "1"
    assert {model.number for model in new.models.values()} == {2}
    for model in new.beside().values():
        place(model, tmp_path / model.name)
    assert (tmp_path / "think.v2" / "2").is_dir()
    with pytest.raises(UpgradeRefused, match=r"no version 9: .* there are 1, 2"):
        of_number(now, 9, models)


def test_a_repository_brings_what_it_has_of_a_stage(tmp_path: Path) -> None:
    now = started("think", copies(tmp_path / "ours"))
    copies(tmp_path / "new")
    new = of_folder(now, 3, tmp_path / "new", {"think": {"max_waiting": "7"}})
    assert (new.number, set(new.models)) == (3, {"think", "think_step"})
    assert new.models["think"].parameters["max_waiting"] == "7"
    refuse_others_callers(now, new)
    with pytest.raises(UpgradeRefused, match="has no model 'think'"):
        of_folder(now, 3, only(tmp_path / "other", "vocoder"), {})


def test_other_tensors_are_refused(tmp_path: Path) -> None:
    now = started("think", copies(tmp_path / "ours"))
    new = of_folder(now, 2, tmp_path / "ours", {})
    new.models["think"].config.output.add(name="MORE", data_type=1, dims=[1])
    with pytest.raises(UpgradeRefused, match="another output"):
        refuse_others_callers(now, new)


def only(folder: Path, name: str) -> Path:
    (folder / name / "1").mkdir(parents=True)
    config = REPOSITORIES[0] / name / "config.pbtxt"
    (folder / name / "config.pbtxt").write_text(config.read_text())
    return folder
