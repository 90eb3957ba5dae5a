"""The emulated device: one task at a time, whoever asks, whoever dies; and the files around it."""

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from loadtest.device import Delays, Device, Emulation, Profile, SpanLog, create, read_passes
from loadtest.device.device import HEADER, RECORD
from loadtest.device.emulation import ENVIRONMENT, even_parts
from loadtest.device.overhead import measure

KILLED_WITH_THE_LOCK = """
import os, signal, sys
from pathlib import Path
from loadtest.device import Device
device = Device(Path(sys.argv[1]))
device.reserve("before", 1, 0.5)
device._lock.__enter__()
device._ring._map[{offset}:{offset} + 4] = b"torn"
os.kill(os.getpid(), signal.SIGKILL)
"""
BUSY_PROCESS = """
import sys
from pathlib import Path
from loadtest.device import Device
device = Device(Path(sys.argv[1]))
for number in range(200):
    device.reserve(sys.argv[2], number, 0.01)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create(tmp_path / "one.dev")
    return tmp_path / "one.dev"


def emulation(path: Path) -> Emulation:
    return Emulation(Profile.named("profile"), {"listen": str(path)}, delays=Delays(build_ms=3))


def run_python(code: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code, *arguments])


def test_a_task_ends_after_its_cost_and_is_waited_for(path: Path) -> None:
    done = Device(path).run("think", 3, 2.0)
    assert time.monotonic_ns() >= done.end_ns
    assert done.end_ns - done.start_ns == 2_000_000
    [noted] = read_passes(path)
    assert (noted.device, noted.stage, noted.members) == ("one.dev", "think", 3)
    assert (noted.submitted_ns, noted.start_ns, noted.end_ns) == (
        done.submitted_ns,
        done.start_ns,
        done.end_ns,
    )


def test_a_task_waits_for_those_submitted_before_it(path: Path) -> None:
    device = Device(path)
    first, second = device.reserve("think", 1, 50.0), device.reserve("speak", 1, 5.0)
    assert second.start_ns == first.end_ns > second.submitted_ns


def test_an_idle_device_starts_at_once(path: Path) -> None:
    device = Device(path)
    device.run("think", 1, 0.1)
    later = device.reserve("think", 1, 0.1)
    assert later.start_ns == later.submitted_ns


def test_a_faster_device_takes_less_time(path: Path) -> None:
    done = Device(path, speed=4.0).reserve("think", 1, 10.0)
    assert done.end_ns - done.start_ns == 2_500_000


def test_threads_and_processes_never_overlap_and_are_served_in_order(path: Path) -> None:
    processes = [run_python(BUSY_PROCESS, str(path), name) for name in ("left", "right")]
    device = Device(path)
    threads = [
        threading.Thread(target=lambda: [device.reserve("here", 1, 0.01) for _ in range(200)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0]
    passes = read_passes(path)
    assert len(passes) == 1000
    for before, after in pairwise(passes):
        assert before.submitted_ns <= after.submitted_ns
        assert after.start_ns == max(after.submitted_ns, before.end_ns)
    assert sum(one.end_ns - one.start_ns for one in passes) == 1000 * 10_000
    left = [one.members for one in passes if one.stage == "left"]
    assert left == list(range(200))


def test_a_process_killed_with_the_lock_leaves_it_free_and_no_half_a_record(path: Path) -> None:
    second_record = HEADER.size + RECORD.size
    killed = run_python(KILLED_WITH_THE_LOCK.format(offset=second_record), str(path))
    assert killed.wait() == -9
    Device(path).reserve("after", 1, 0.5)
    assert [one.stage for one in read_passes(path)] == ["before", "after"]


def test_a_ring_that_has_overflowed_is_no_book(tmp_path: Path) -> None:
    path = tmp_path / "small.dev"
    create(path, capacity=3)
    device = Device(path)
    ends = [device.reserve("think", 1, 1.0).end_ns for _ in range(3)]
    assert [one.end_ns for one in read_passes(path)] == ends
    assert device.reserve("think", 1, 1.0).start_ns == ends[-1]
    with pytest.raises(ValueError, match="keeps only 3"):
        read_passes(path)


def test_what_is_no_device_is_refused(tmp_path: Path, path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="not an emulated device"):
        Device(tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        Device(tmp_path / "absent")
    with pytest.raises(ValueError, match="at most 16 bytes"):
        Device(path).reserve("a very long name of a stage", 1, 1.0)


def test_an_emulation_is_read_as_it_was_written(tmp_path: Path, path: Path) -> None:
    for name in ("profile", "profile-diffusion"):
        written = replace(emulation(path), profile=Profile.named(name), speed=2.0, pieces=3)
        written.write(tmp_path / "emulation.json")
        assert Emulation.read(tmp_path / "emulation.json") == written


def test_the_environment_names_the_file(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    with pytest.raises(RuntimeError, match=ENVIRONMENT):
        Emulation.load()
    emulation(path).write(tmp_path / "emulation.json")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "emulation.json"))
    assert Emulation.load().device("listen").name == "one.dev"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sped": 1}, r"unknown \['sped'\].*known: .*speed"),
        ({"speed": "fast"}, "speed is 'fast', not a number"),
        ({"pieces": 1.5}, "pieces is 1.5, not a int"),
        ({"pieces": True}, "pieces is True, not a int"),
        ({"speed": 0}, "speed must be positive"),
        ({"delays": {"encoder_ms": 1}}, r"delays: unknown \['encoder_ms'\]"),
        ({"devices": ["listen"]}, "devices is .*, not a dict"),
        ({"profile": {}}, "profile: unknown .*missing .*'stages'"),
    ],
)
def test_a_wrong_emulation_file_is_refused_with_the_place(
    tmp_path: Path, path: Path, change: dict[str, object], said: str
) -> None:
    file = tmp_path / "emulation.json"
    emulation(path).write(file)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=said):
        Emulation.read(file)


def test_costs_and_gaps_grow_with_the_members(path: Path) -> None:
    listen = Profile.named("profile").stages["listen"].cost_ms
    assert (listen.ms(1), listen.ms(8)) == (30.0, 86.0)
    grown = replace(emulation(path), gap_per_member_ms=0.5)
    assert (grown.gap_ms(0), grown.gap_ms(8)) == (4.0, 8.0)


def test_pieces_share_the_steps_unless_the_profile_says_how(path: Path) -> None:
    assert emulation(path).piece_steps == (40,)
    assert replace(emulation(path), pieces=3).piece_steps == (13, 13, 14)
    diffusion = replace(emulation(path), profile=Profile.named("profile-diffusion"))
    assert diffusion.piece_steps == (4, 12, 12, 12)
    assert even_parts(75, 1) == (75,)


def test_spans_are_there_at_once_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtest.device.spans.LIMIT", 2)
    log = SpanLog(str(tmp_path / "spans"), "think")
    for number in range(3):
        log.write("host", number, number + 5, members=8)
    [file] = (tmp_path / "spans").glob("think-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["start_ns"] for line in lines] == [0, 1]
    assert lines[0] == {"stage": "think", "what": "host", "start_ns": 0, "end_ns": 5, "members": 8}
    SpanLog("", "think").write("host", 0, 1, 1)


def test_the_device_measures_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.device.overhead.ROUNDS", 20)
    monkeypatch.setattr("loadtest.device.overhead.PASSES", 5)
    found = measure(tmp_path)
    assert found["emulated device"] is True
    assert {"lock_alone", "overshoot"} < found.keys()
