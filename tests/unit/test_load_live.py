"""People in live calls: against a script, and whole runs against a server that answers as one."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client import audio
from client.live.events import Floats
from loadtest.load import RunSpec, run
from loadtest.load.live_person import (
    CHUNK,
    CHUNK_HEARD,
    CHUNK_S,
    FIRST_SOUND,
    HOLD,
    Person,
    spoken_part,
    whole_chunks,
)
from loadtest.load.records import Turn, read_turns
from loadtest.load.runner import describe
from loadtest.load.session import Session
from loadtest.load.spec import ROOT
from loadtest.load.summary import Summary
from python_backends.errors import InvalidInput, Overloaded, StageFailed
from tests.unit.fake_live import RATE_HZ, Answering, event, listened
from tests.unit.fake_triton import Message, serving

TONE = np.full(CHUNK, 0.5, np.float32)
SOUND = np.full(RATE_HZ // 10, 0.25, np.float32)


def spec(out: Path, **changes: Any) -> RunSpec:
    usual = {"people": 3, "seconds": 2.5, "warm_up_s": 0.5, "ramp_s": 0.3, "timeout_s": 2.0}
    named = {"name": "live", "target": "live", "model": "live", "live": True, "out": out}
    return RunSpec(**named | usual | {"recordings": (out / "tone.wav",)} | changes)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording of 0.2 s."""
    folder = tmp_path_factory.mktemp("live")
    audio.write(folder / "tone.wav", np.concatenate([TONE, TONE]), 16_000)
    return folder


# One person.


class Switchboard:
    """As much of a Caller as a person needs."""

    def __init__(self, sounds: Sequence[Floats]) -> None:
        self.sounds = list(sounds)
        self.numbers = count()

    def new_id(self) -> str:
        return f"r-{next(self.numbers)}"

    def spoken(self, user: int) -> list[Floats]:
        return self.sounds


class OnTheLine:
    """A person whose chunks are asked for one by one; their call is r-0."""

    def __init__(self, out: Path, *sounds: Floats, **changes: Any) -> None:
        session = Session(Switchboard(sounds or [TONE]), 1.0)  # type: ignore[arg-type]
        self.times: list[str] = []
        self.turns: list[Turn] = []
        self.person = Person(
            0, spec(out, **changes), session, lambda name, ms: self.times.append(name), self.end
        )
        self.began_s = time.monotonic()
        self.chunks = 0
        self.request: Any = None

    def end(self, turn: Turn) -> None:
        self.turns.append(turn)

    def say(self, chunks: int = 1, *, later_s: float = 0.0) -> None:
        for _ in range(chunks):
            self.chunks += 1
            self.request = self.person.request(self.began_s + later_s + self.chunks * CHUNK_S)

    def hear(self, kind: str, turn: str = "r-0.1", **more: Any) -> None:
        self.person.take(event(self.request, kind, turn=turn, **more))


def test_a_recording_that_is_answered_is_a_turn_from_its_end_on(out: Path) -> None:
    line = OnTheLine(out)
    line.say(2)
    line.hear("transcript", text="Two burgers.")
    for last in (False, True):
        line.hear("audio", speech=SOUND, last=last)
    line.hear("answered")
    (turn,) = line.turns
    assert (turn.turn, turn.outcome, turn.chunk_audio_ms) == ("r-0.1", "ok", [100.0, 100.0])
    assert turn.intended_ns == pytest.approx((line.began_s + CHUNK_S) * 1e9, abs=1e6)
    assert line.times == [FIRST_SOUND]


def test_an_answer_that_is_spoken_into_is_held_and_over(out: Path) -> None:
    line = OnTheLine(out, barge_in=1.0)
    line.say()
    line.hear("transcript")
    line.hear("audio", speech=SOUND)
    line.hear("paused")
    assert line.times == [FIRST_SOUND], "nobody had spoken"
    line.say(later_s=2.0)
    line.hear("paused")
    line.hear("interrupted", said="Su")
    assert line.times == [FIRST_SOUND, HOLD]
    (turn,) = line.turns
    assert (turn.outcome, turn.detail) == ("ok", "interrupted")
    line.hear("transcript", "r-0.2")
    line.hear("failed", "r-0.2", error=Overloaded("no room", stage="think").to_wire())
    assert (line.turns[1].turn, line.turns[1].reason) == ("r-0.2", "OVERLOADED at think")


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (["no_speech"], "STAGE_FAILED at client"),
        (["transcript", "interrupted"], "STAGE_FAILED at client"),
    ],
)
def test_a_turn_without_an_answer_has_failed(out: Path, events: list[str], reason: str) -> None:
    line = OnTheLine(out)
    line.say()
    for kind in events:
        line.hear(kind)
    (turn,) = line.turns
    assert (turn.outcome, turn.reason) == ("error", reason)
    assert "instead of an answer" in turn.detail


def test_what_is_told_of_a_part_of_a_recording_is_no_answer_to_it(out: Path) -> None:
    line = OnTheLine(out, np.concatenate([TONE, TONE]))
    line.say()
    for kind in ("transcript", "audio", "interrupted"):
        line.hear(kind)
    line.say()
    line.hear("transcript", "r-0.2")
    line.hear("audio", "r-0.2", speech=SOUND)
    line.hear("answered", "r-0.2")
    assert [turn.turn for turn in line.turns] == ["r-0.2"]


def test_a_refused_chunk_is_a_failure_and_the_turn_goes_on(out: Path) -> None:
    line = OnTheLine(out)
    line.say(2)
    refused = event(line.request, "failed")
    refused.infer_response.Clear()
    refused.infer_response.id = line.request.id
    refused.error_message = InvalidInput("PCM has a shape", stage="live").to_wire()
    line.person.take(refused)
    assert [turn.reason for turn in line.turns] == ["INVALID_INPUT at live"]
    line.hear("transcript")
    line.hear("answered")
    assert [turn.outcome for turn in line.turns] == ["error", "ok"]


def test_an_answered_chunk_is_timed(out: Path) -> None:
    line = OnTheLine(out)
    line.say(2)
    (answer,) = listened(line.request)
    line.person.take(answer)
    assert line.times == [CHUNK_HEARD]


def test_what_is_open_fails_with_the_call_or_is_left_open(out: Path) -> None:
    failed, left = OnTheLine(out), OnTheLine(out)
    for line in (failed, left):
        line.say()
    failed.person.fail(Overloaded("no room", stage="live"))
    left.person.leave()
    assert [turn.outcome for turn in failed.turns + left.turns] == ["refused", "open"]


def test_a_call_that_breaks_while_nothing_is_open_is_a_failure_as_well(out: Path) -> None:
    line = OnTheLine(out)
    line.person.fail(Overloaded("no room", stage="live"))
    assert [turn.outcome for turn in line.turns] == ["refused"]


def test_the_report_goes_with_the_next_chunk(out: Path) -> None:
    line = OnTheLine(out)
    line.say()
    line.hear("audio", speech=SOUND)
    line.say()
    assert [one.name for one in line.request.inputs] == ["PCM", "REPORT"]


def test_recordings_are_cut_to_their_speech_and_end_with_a_chunk() -> None:
    quiet = np.full(999, 0.001, np.float32)
    cut = spoken_part(np.concatenate([quiet, TONE, quiet]))
    assert cut.size == TONE.size
    assert spoken_part(quiet).size == quiet.size
    padded = whole_chunks(np.ones(CHUNK + 1, np.float32))
    assert padded.size == 2 * CHUNK
    assert padded[-1] == 1
    assert not padded[: CHUNK - 1].any()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recordings": ()}, "has recordings"),
        ({"mode": "open", "rate": 1.0}, "a closed loop"),
        ({"barge_in": 1.5}, "a share"),
    ],
)
def test_a_live_run_that_makes_no_sense_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        spec(tmp_path, **changes)


def test_a_live_run_survives_its_json_and_says_what_it_is(tmp_path: Path) -> None:
    real = spec(tmp_path, barge_in=0.5)
    assert RunSpec.from_json(real.to_json()) == real
    assert describe(real) == "live: 3 people on the line"
    emulated = spec(tmp_path, emulation=tmp_path / "emulation.json")
    assert describe(emulated) == "live: 3 people on the line (emulated device)"


# Whole runs.


def times(folder: Path) -> dict[str, dict[str, float]]:
    told: dict[str, dict[str, float]] = json.loads((folder / "run.json").read_text())["times_ms"]
    return told


def test_people_are_answered_and_some_interrupt(out: Path) -> None:
    """Answers are a second long; whoever interrupts does so after a second."""
    with serving(Answering(chunks=[15])) as (_, address):
        folder = run(spec(out, name="barge", barge_in=0.5, seconds=4.0), address)
    turns = [turn for turn in read_turns(folder) if turn.outcome == "ok"]
    interrupted = [turn for turn in turns if turn.detail == "interrupted"]
    assert 0 < len(interrupted) < len(turns)
    assert all(turn.turn.partition(".")[2] for turn in turns)
    assert set(times(folder)) == {CHUNK_HEARD, HOLD}
    assert times(folder)[HOLD]["count"] <= len(interrupted) + 3
    summary = Summary.read(folder)
    assert summary.answered == summary.counted > 0
    assert not summary.failures
    assert summary.first_audio_s
    assert set(summary.times_s) == set(times(folder))


def no_answer(request: Any, context: Any) -> Iterator[Message]:
    yield from listened(request)


def silent(request: Any, context: Any) -> Iterator[Message]:
    yield from ()


def test_what_goes_wrong_is_told_by_its_code(out: Path) -> None:
    quick = {"people": 1, "timeout_s": 0.4, "seconds": 1.0}
    refusal = Overloaded("64 calls are on the line", stage="live", retry_after_ms=50)
    with serving(Answering(refuse=refusal.to_wire())) as (_, address):
        refused = run(spec(out, **quick | {"name": "refused", "warm_up_s": 0.0}), address)
    with serving(no_answer) as (_, address):
        late = run(spec(out, **quick, name="late"), address)
    with serving(silent) as (_, address):
        dead = run(spec(out, **quick, name="dead"), address)
    first, *others = read_turns(refused)
    assert (first.outcome, first.reason) == ("refused", "OVERLOADED at live")
    assert "ok" in {turn.outcome for turn in others}, "the next call is answered"
    assert set(Summary.read(late).failures) == {"timeout: DEADLINE_MISSED at client"}
    assert any("nothing was answered" in turn.detail for turn in read_turns(dead))


def test_locust_shows_what_people_in_live_calls_wait_for() -> None:
    command = [sys.executable, "-m", "locust", "-f", "loadtest/load/locustfile.py"]
    load = ["LiveCallUser", "--headless", "-u", "2", "-r", "2", "-t", "7s", "--only-summary"]
    with serving(Answering()) as (_, address):
        ended = subprocess.run(
            [*command, *load, "--host", address, "--barge-in", "0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    shown = ended.stdout + ended.stderr
    assert ended.returncode == 0, shown
    assert FIRST_SOUND in shown
    assert CHUNK_HEARD in shown
    assert "Traceback" not in shown
    assert StageFailed.code not in shown
