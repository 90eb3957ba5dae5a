"""Upgrades that fail or are called off at each of their steps, on a server that only says so."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.errors import ServerFailed, UpgradeFailed, UpgradeRefused
from deploy.repositories import Model, place
from deploy.rolling import change
from deploy.rolling.change import Terms
from deploy.rolling.policy import Seen
from tests.unit.rolling_world import TERMS, World, copies, world, written_again

__all__ = ["world"]
THINK, ACOUSTIC = "think", "acoustic"
OLD, NEW = "first think", "new think"
SHORT = Terms(trial_s=0.0, drain_s=0.05)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    copies(tmp_path / "new")
    return tmp_path / "new"


def is_as_before(world: World, *stages: str) -> None:
    for stage in stages:
        assert world.now(stage)[0] == (1, "serving", True)
        assert world.served_by(stage) == f"first {stage}"
    assert (world.beside, world.folders_beside) == ([], [])
    assert world.server.serving.models == {}


def failing(*names: str, of: str = "new") -> Callable[[str, Path], None]:
    """Loads of these models fail with the weights of that release."""

    def load(name: str, weights: Path) -> None:
        if name in names and weights.read_text().startswith(of):
            raise ServerFailed(f"model {name!r} was not loaded: out of memory")

    return load


def test_a_version_serves_and_the_one_before_comes_back(world: World, new: Path) -> None:
    world.upgrade([THINK, ACOUSTIC], new)
    assert world.now(THINK) == [(1, "gone", False), (2, "serving", True)]
    assert (world.served_by(THINK), world.served_by(ACOUSTIC)) == (NEW, "new acoustic")
    assert (world.beside, world.folders_beside) == ([], [])
    world.rollback(THINK)
    assert world.now(THINK) == [(1, "serving", True), (2, "gone", False)]
    world.start_again()
    assert (world.served_by(THINK), world.served_by(ACOUSTIC)) == (OLD, "new acoustic")


@pytest.mark.parametrize("when", ["loading", "trial stood", "settling"])
def test_one_that_is_called_off_is_back_when_the_rollback_returns(
    world: World, new: Path, when: str
) -> None:
    loading = {"loading": "think.v2", "settling": THINK}.get(when)

    def load(name: str, weights: Path) -> None:
        if name == loading:
            world.wait_for("is being taken back")

    world.on_load = load
    world.turns = {0: 3} if when == "trial stood" else {}
    with world.trying(lambda: world.upgrade([THINK], new)) as raised:
        world.wait_for(when)
        world.rollback(THINK)
        assert world.told[-1] == "think 1: serving again"
        is_as_before(world, THINK)
        assert "not waited for" not in "".join(world.told)
    assert list(map(str, raised)) == ["think 2 was taken back, think 1 serves: it was called off"]
    world.turns.clear()
    world.upgrade([THINK], new)
    assert world.served_by(THINK) == NEW


def test_one_that_has_settled_is_rolled_back_when_it_is_done(world: World, new: Path) -> None:
    world.turns = {1: 3}
    with world.trying(lambda: world.upgrade([THINK], new)) as raised:
        world.wait_for("settling")
        while world.now(THINK)[1] != (2, "serving", True) or world.server.serving.epoch < 2:
            world.wait_a_moment()
        with world.trying(lambda: world.rollback(THINK)) as refused:
            world.wait_for("has settled already")
            assert world.served_by(THINK) == NEW
            world.turns.clear()
    assert (raised, refused) == ([], [])
    is_as_before(world, THINK)


def test_a_rollback_is_no_upgrade_to_be_called_off(world: World, new: Path) -> None:
    world.upgrade([THINK], new)
    world.turns = {2: 3}
    world.told.clear()
    with world.trying(lambda: world.rollback(THINK)) as raised:
        world.wait_for("trial stood")
        with pytest.raises(UpgradeRefused, match="think is on its way back to 1 already"):
            world.rollback(THINK)
        world.turns.clear()
    assert raised == []
    is_as_before(world, THINK)


def test_a_turn_that_does_not_end_behind_the_settling_changes_nothing(
    world: World, new: Path
) -> None:
    world.turns = {1: 1}
    world.upgrade([THINK], new, SHORT)
    assert world.now(THINK) == [(1, "gone", False), (2, "serving", True)]
    assert (world.beside, world.folders_beside) == ([], [])
    world.wait_for("that began before are open; that is not waited for any longer")
    world.turns.clear()
    world.rollback(THINK)
    is_as_before(world, THINK)


def test_a_turn_that_does_not_end_before_the_settling_takes_it_back(
    world: World, new: Path
) -> None:
    world.turns = {0: 1}
    with pytest.raises(UpgradeFailed, match=r"think 1 serves: after 0\.05 s 1 turns"):
        world.upgrade([THINK], new, SHORT)
    is_as_before(world, THINK)


def test_a_server_that_starts_again_while_it_settles_has_what_it_had(
    world: World, new: Path
) -> None:
    def load(name: str, weights: Path) -> None:
        if name == ACOUSTIC and not world.server.replaced:
            world.on_load = lambda name, weights: None
            world.start_again()
            raise ServerFailed("connection refused")

    world.on_load = load
    with pytest.raises(UpgradeFailed, match="think 1, acoustic 1 serves: connection refused"):
        world.upgrade([THINK, ACOUSTIC], new)
    is_as_before(world, THINK, ACOUSTIC)
    world.start_again()
    is_as_before(world, THINK, ACOUSTIC)


def test_a_server_that_starts_again_just_when_it_has_settled_has_what_it_had(
    world: World, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change.Recall, "settle", lambda _: world.start_again())
    with pytest.raises(UpgradeFailed, match="think 1 serves: the server has been started again"):
        world.upgrade([THINK], new)
    is_as_before(world, THINK)
    world.start_again()
    is_as_before(world, THINK)


def test_a_server_that_starts_again_behind_the_settling_has_the_new_one(
    world: World, new: Path
) -> None:
    world.turns = {1: 1}
    with world.trying(lambda: world.upgrade([THINK], new)) as raised:
        while not world.server.replaced:
            world.wait_a_moment()
        world.turns.clear()
        world.start_again()
    assert raised == []
    assert world.now(THINK) == [(1, "gone", False), (2, "serving", True)]
    assert world.served_by(THINK) == NEW


def test_each_stage_is_taken_back_by_itself(world: World, new: Path) -> None:
    """The second does not settle, and the first cannot be restored: turns go on at its new one."""

    def load(name: str, weights: Path) -> None:
        failing(ACOUSTIC)(name, weights)
        failing(THINK, of="first")(name, weights)

    world.on_load = load
    told = r"acoustic 2 was to be taken back: .*out of memory.*think 2 serves on as think\.v2"
    with pytest.raises(UpgradeFailed, match=told) as failure:
        world.upgrade([THINK, ACOUSTIC], new)
    assert "acoustic 2 serves on" not in str(failure.value)
    assert world.served_by(ACOUSTIC) == "first acoustic"
    assert world.now(ACOUSTIC)[0] == (1, "serving", True)
    assert world.now(THINK) == [(1, "gone", False), (2, "serving", True)]
    assert (world.server.serving.models, world.beside) == ({THINK: "think.v2"}, ["think.v2"])

    world.on_load = lambda name, weights: None
    world.rollback(THINK)
    is_as_before(world, THINK, ACOUSTIC)


@pytest.mark.parametrize("room", [True, False])
def test_one_that_does_not_settle_leaves_the_old_one_under_its_name(
    world: World, new: Path, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no room for a third one the stage has been unloaded by then."""
    monkeypatch.setattr(change.Change, "_thrice", lambda *_: room)
    world.on_load = failing(ACOUSTIC)
    with pytest.raises(UpgradeFailed, match=r"acoustic 1 serves: .* out of memory"):
        world.upgrade([THINK, ACOUSTIC], new)
    is_as_before(world, THINK, ACOUSTIC)


@pytest.mark.parametrize("where", ["think.v2", THINK, "acoustic_step.v2", ACOUSTIC])
def test_a_full_disk_leaves_all_as_it_was(
    world: World, new: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(model: Model, folder: Path) -> None:
        if folder.name == where:
            raise OSError(errno.ENOSPC, "No space left on device")
        place(model, folder)

    monkeypatch.setattr(change, "place", full)
    with pytest.raises(UpgradeFailed, match=r"think 1, acoustic 1 serves: .*No space left"):
        world.upgrade([THINK, ACOUSTIC], new)
    is_as_before(world, THINK, ACOUSTIC)


def test_turns_that_cannot_be_sent_elsewhere_stay_served(
    world: World, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from the settling on: the version that turns go to is not taken away."""
    write, left = change.Serving.write, [1]

    def full(serving: change.Serving, path: Path) -> None:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        left.pop()
        write(serving, path)

    monkeypatch.setattr(change.Serving, "write", full)
    world.upgrade([THINK], new)
    assert "what is beside is not cleared away: [Errno 28]" in world.told[-1]
    assert world.now(THINK) == [(1, "gone", False), (2, "serving", True)]
    assert (world.server.serving.model(THINK), world.served_by(THINK)) == ("think.v2", NEW)
    monkeypatch.undo()


def test_figures_that_are_late_now_and_then_take_nothing_back(world: World, new: Path) -> None:
    world.blind = 5
    world.upgrade([THINK], new)
    assert (world.blind, world.served_by(THINK)) == (0, NEW)


def test_a_version_that_nothing_is_known_of_is_taken_back(world: World, new: Path) -> None:
    world.blind = 10**9
    with pytest.raises(UpgradeFailed, match="taken back, think 1 serves: no metrics"):
        world.upgrade([THINK], new, Terms(trial_s=0.0, answer_s=0.05))
    is_as_before(world, THINK)


def test_a_bug_leaves_the_old_one_serving(world: World, new: Path) -> None:
    def load(name: str, weights: Path) -> None:
        if name == THINK and weights.read_text() == NEW:
            raise KeyError(name)

    world.on_load = load
    with pytest.raises(UpgradeFailed, match="taken back, think 1 serves: 'think'"):
        world.upgrade([THINK], new)
    is_as_before(world, THINK)


def test_one_that_hangs_is_taken_back(world: World, new: Path) -> None:
    world.seen = Seen(0, 0, alive=True, open=7)
    with pytest.raises(UpgradeFailed, match="it has answered nothing for 0 s: 7 requests are open"):
        world.upgrade([THINK], new, Terms(trial_s=0.0, answer_s=0.05))
    is_as_before(world, THINK)


def test_one_that_hangs_while_others_drain_is_taken_back(world: World, new: Path) -> None:
    world.turns = {0: 1}
    with world.trying(lambda: world.upgrade([THINK], new, Terms(0.0, answer_s=0.05))) as raised:
        world.wait_for("trial stood")
        world.seen = Seen(0, 0, alive=True, open=7)
        while not raised:
            world.wait_a_moment()
            if world.server.serving.epoch == 2:
                world.turns.clear()
    assert "it has answered nothing" in str(raised[0])
    is_as_before(world, THINK)


def test_what_was_written_over_the_files_that_serve_is_refused(world: World, new: Path) -> None:
    world.upgrade([THINK], new)
    written_again(new, "think_step")
    with pytest.raises(UpgradeRefused, match=r"think_step/1 has other files than when version 2"):
        world.upgrade([THINK], new)
    assert world.now(THINK) == [(1, "gone", False), (2, "serving", True)]
    world.rollback(THINK)
    world.upgrade([THINK], new)
    assert world.served_by(THINK) == NEW


def test_files_that_the_server_was_started_with_count_as_they_were_then(world: World) -> None:
    first = world.first[THINK].folder.parent
    written_again(first, THINK)
    with pytest.raises(UpgradeRefused, match="other files than when version 1 of think"):
        world.upgrade([THINK], first)


def test_a_version_whose_files_have_changed_does_not_come_back(world: World, new: Path) -> None:
    world.upgrade([THINK], new)
    written_again(world.first[THINK].folder.parent, THINK)
    with pytest.raises(UpgradeRefused, match="version 1 of think is not there any more"):
        world.rollback(THINK)
    assert world.served_by(THINK) == NEW


def test_a_version_folder_may_be_mended_and_tried_again(world: World) -> None:
    weights = world.first[THINK].folder / "2" / "weights"
    weights.parent.mkdir()
    for told, fails in (("bad", {"think.v2"}), ("good", set())):
        weights.write_text(f"{told} think 2")
        world.fails = fails
        try:
            world.upgrades.upgrade([THINK], to=2, terms=TERMS)
        except UpgradeFailed:
            assert fails
    assert world.served_by(THINK) == "good think 2"


def test_a_server_that_is_being_started_is_not_upgraded(world: World, new: Path) -> None:
    world.server.end()
    with pytest.raises(ServerFailed, match="is being started again"):
        world.upgrade([THINK], new)


def test_the_same_files_again_are_another_version(world: World) -> None:
    """The runbook's cure for a leak."""
    world.upgrade([THINK], world.first[THINK].folder.parent)
    assert world.now(THINK) == [(1, "gone", False), (2, "serving", True)]
    assert world.served_by(THINK) == OLD


@pytest.mark.parametrize("wanted", [[THINK, THINK], []])
def test_each_stage_is_named_once(world: World, new: Path, wanted: list[str]) -> None:
    with pytest.raises(UpgradeRefused, match="each stage once"):
        world.upgrade(wanted, new)


def test_one_change_at_a_time(world: World, new: Path) -> None:
    world.turns = {0: 1}
    with world.trying(lambda: world.upgrade([THINK], new)) as raised:
        world.wait_for("trial stood")
        with pytest.raises(UpgradeRefused, match="an upgrade is under way: think"):
            world.upgrade([ACOUSTIC], new)
        with pytest.raises(UpgradeRefused, match="an upgrade is under way: think"):
            world.rollback(ACOUSTIC)
        world.turns.clear()
    assert raised == []


def test_one_that_does_not_answer_a_real_request(world: World, new: Path) -> None:
    world.fails = {"think.v2"}
    with pytest.raises(UpgradeFailed, match=r"'think\.v2' failed: it answers probes alone"):
        world.upgrade([THINK], new)
    is_as_before(world, THINK)
    world.fails = {"think", "think.v2"}
    world.upgrade([THINK], new)
    assert world.served_by(THINK) == NEW


def test_a_gate_that_does_not_pass(world: World, new: Path) -> None:
    gate = "echo $TRISTAGE_SHADOW is bad; exit 3"
    with pytest.raises(UpgradeFailed, match="its gate ended with 3"):
        world.upgrade([THINK], new, Terms(gate=gate))
    assert "gate: think.v2 is bad" in world.told
    is_as_before(world, THINK)


def test_a_gate_that_is_called_off(world: World, new: Path) -> None:
    gate = Terms(gate="echo begun; sleep 60 & wait")
    with world.trying(lambda: world.upgrade([THINK], new, gate)) as raised:
        world.wait_for("gate: begun")
        world.rollback(THINK)
    assert "it was called off" in str(raised[0])
    is_as_before(world, THINK)
