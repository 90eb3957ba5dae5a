"""What a run would become: foretold from its own record, against another simulator's truth."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from loadtest.device import Profile
from loadtest.ledger import Explanation
from loadtest.sim.forecast import (
    CHANGES,
    ENCODER_APART,
    fitted,
    forecast,
    throughput,
    what_if,
)
from loadtest.sim.runs import SHARED
from tests.unit.ledger_simulator import simulate
from tests.unit.ledger_world import Knobs

PROFILE = Profile.named("profile")


def recorded(folder: Path, **knobs: object) -> Explanation:
    """A run of the tiny exact server, which knows nothing of the one that foretells."""
    simulate(Knobs(**{"people": 24, "seconds": 12.0, "gap": 0.5, **knobs}), folder)  # type: ignore[arg-type]
    facts = json.loads((folder / "run.json").read_text())
    facts |= {"profile": asdict(PROFILE)}
    (folder / "run.json").write_text(json.dumps(facts))
    return Explanation.of(folder)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    return recorded(tmp_path_factory.mktemp("shared"))


def test_costs_are_those_that_the_devices_recorded(shared: Explanation) -> None:
    profile, wakeup_ms = fitted(shared.run)
    for name in ("think", "speak"):
        found, truth = profile.stages[name].cost_ms, PROFILE.stages[name].cost_ms
        assert found.ms(8) == pytest.approx(truth.ms(8), rel=0.01)
    assert wakeup_ms == pytest.approx(0.5, abs=0.05)


def test_where_nothing_changes_what_was_measured_is_foretold(shared: Explanation) -> None:
    found = forecast(shared, SHARED, SHARED)
    assert found.turns_gain == 1.0
    assert found.turns_per_s == throughput(shared)
    assert found.first_audio_p95_ms == shared.rulers.first_audio.p95


def test_an_encoder_apart_gives_more_turns_and_earlier_sound(shared: Explanation) -> None:
    found = forecast(shared, ENCODER_APART, SHARED)
    assert found.turns_gain > 1.0
    assert shared.rulers.first_audio.p95 is not None
    assert found.first_audio_p95_ms < shared.rulers.first_audio.p95


def test_what_gives_most_comes_first(shared: Explanation) -> None:
    found = what_if(shared)
    assert set(found) == set(CHANGES)
    gains = [one.turns_gain for one in found.values()]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.0


def test_nothing_is_foretold_of_a_monolith(tmp_path: Path) -> None:
    assert what_if(recorded(tmp_path, monolith=True)) == {}


def test_a_run_without_a_record_of_its_devices_is_refused(
    shared: Explanation, tmp_path: Path
) -> None:
    told = recorded(tmp_path)
    (tmp_path / "device.jsonl").unlink()
    with pytest.raises(ValueError, match="no record of its devices"):
        fitted(Explanation.of(told.run.folder).run)
