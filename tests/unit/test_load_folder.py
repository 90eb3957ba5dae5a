import json
import time
from pathlib import Path

import pytest

from loadtest.device import Device, create
from loadtest.load import RunSpec
from loadtest.load.folder import complete, prepare

NOW = {"ended_ns": 0, "measured_from_ns": 0, "measured_to_ns": 0, "generator": {}, "counts": {}}


def spec(out: Path, emulation: Path | None = None) -> RunSpec:
    return RunSpec("a", "stages", "emu_turn", people=3, out=out, emulation=emulation)


def test_a_former_run_of_the_name_makes_room(tmp_path: Path) -> None:
    former = prepare(spec(tmp_path)) / "turns.jsonl"
    former.write_text("old")
    prepare(spec(tmp_path))
    assert not former.exists()


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    letter = tmp_path / "a" / "letter.txt"
    letter.parent.mkdir()
    letter.write_text("dear")
    with pytest.raises(FileExistsError):
        prepare(spec(tmp_path))
    assert letter.read_text() == "dear"


def test_what_devices_and_stages_recorded_during_the_run_is_kept_with_it(tmp_path: Path) -> None:
    create(tmp_path / "d.dev")
    device, spans = Device(tmp_path / "d.dev"), tmp_path / "spans"
    device.run("think", 1, 0.1)
    time.sleep(0.01)
    started_ns = time.monotonic_ns()
    device.run("speak", 2, 0.1)
    ended_ns = time.monotonic_ns()
    device.close()
    spans.mkdir()
    old = {"stage": "think", "what": "host", "start_ns": 1, "end_ns": 2, "members": 1}
    new = {**old, "start_ns": started_ns, "end_ns": ended_ns}
    lines = f"{json.dumps(old)}\n{json.dumps(new)}\n{json.dumps(new)[:20]}"
    (spans / "think-1.jsonl").write_text(lines)
    emulation = tmp_path / "emulation.json"
    devices = {"think": str(tmp_path / "d.dev"), "speak": str(tmp_path / "d.dev")}
    told = {"profile": {"a": 1}, "devices": devices, "spans": str(spans)}
    emulation.write_text(json.dumps(told))
    folder = prepare(spec(tmp_path / "out", emulation))
    facts = {**NOW, "started_ns": started_ns, "ended_ns": ended_ns}
    (folder / "generator.json").write_text(json.dumps(facts))

    complete(spec(tmp_path / "out", emulation), folder)

    passes = [json.loads(line) for line in (folder / "device.jsonl").read_text().splitlines()]
    assert [(one["stage"], one["members"]) for one in passes] == [("speak", 2)]
    assert json.loads((folder / "spans" / "think-1.jsonl").read_text()) == new
    run = json.loads((folder / "run.json").read_text())
    assert run["emulation"] == told
    assert (run["emulated"], run["people"], run["profile"]) == (True, 3, {"a": 1})
