"""Encoder passes, batches of pieces and rows of KV take their bytes before they are computed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from python_backends.bridge import ModelConfig
from python_backends.diffusion_lock.settings import AcousticSettings
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.errors import InvalidInput, StageError, parse
from python_backends.scheduling.bytes import UNBOUNDED, BatchBudget, OverBudget, Usage
from tests import fakes
from tests.unit.acoustic_stage import PARAMETERS as ACOUSTIC
from tests.unit.acoustic_stage import Stage as Acoustic
from tests.unit.acoustic_stage import latents, served
from tests.unit.test_encoder_window_loop import PARAMETERS as ENCODE
from tests.unit.test_encoder_window_loop import FakeEncoder, noise
from tests.unit.test_encoder_window_loop import Stage as Encode

MODES = ("lock", "interleave")
PIECES = {"row_bytes": "80=10, 160=30, 1600=400", "max_batch_bytes": "60"}
PASSES = {"row_bytes": "1500=10, 3000=30", "max_batch_bytes": "20"}


def error(sender: fakes.InferenceResponseSender) -> StageError:
    found = parse(sender.error())
    assert found is not None
    return found


def test_a_batch_takes_its_bytes_and_gives_them_back() -> None:
    some = BatchBudget(60)
    assert [some.most(row) for row in (0, 20, 31, 61)] == [60, 3, 1, 0]
    some.begin(60)
    assert some.usage()["batch"].used == 60
    some.end()
    with pytest.raises(OverBudget):
        some.begin(61)
    some.end()
    assert some.usage() == {"batch": Usage(declared=60, used=0, peak=60)}


def test_batches_without_a_limit_are_counted_all_the_same() -> None:
    some = BatchBudget(0)
    some.begin(10**15)
    assert some.usage()["batch"].peak == 10**15
    assert some.limit == UNBOUNDED


@pytest.fixture
def encode() -> Iterator[Encode]:
    made = Encode(FakeEncoder(), **PASSES)
    yield made
    made.encoder.open.set()
    assert all(sender.wait() is not None for sender in made.sent)
    made.model.finalize()
    made.model._loop.check_integrity()  # type: ignore[attr-defined]
    assert made.model.usage()["batch"].used == 0


def test_a_pass_has_as_many_windows_as_its_bytes_hold(encode: Encode) -> None:
    encode.hold()
    senders = [encode.send(noise(1, seed=number), f"t{number}") for number in range(5)]
    encode.until_waiting(5)
    encode.encoder.open.set()
    assert not any(sender.wait()[-1].has_error() for sender in senders)
    assert [shape[0] for shape in encode.encoder.batches] == [1, 2, 2, 1]
    assert encode.model.usage()["batch"].peak == 20


def test_a_window_that_no_pass_can_take_fails_alone(encode: Encode) -> None:
    encode.hold()
    beside = encode.send(noise(1, seed=1), "beside")
    refused = error(encode.send(noise(20, seed=2), "huge"))
    assert isinstance(refused, InvalidInput)
    assert (refused.reason, refused.turn) == ("bytes", "huge")
    assert refused.message.endswith("takes 30 bytes of a pass; the stage has 20 for one")
    encode.encoder.open.set()
    assert not beside.wait()[-1].has_error()


def test_passes_leak_nothing_when_callers_leave_and_the_encoder_fails(encode: Encode) -> None:
    random = Random(3)
    encode.encoder.refuses_above = 0.9
    for number in range(40):
        sound = noise(1, random.choice([0.01, 0.5, 0.5]), seed=number)
        encode.send(sound, f"t{number}", deadline_ms=random.choice([0, 1]))
        if random.random() < 0.4:
            encode.cancel(f"t{random.randrange(number + 1)}")
    assert all(sender.wait() is not None for sender in encode.sent)


@pytest.fixture(params=MODES)
def acoustic(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Acoustic]:
    for stage in served(tmp_path, mode=request.param, **PIECES):
        yield stage
        stage.flow.open.set()
        assert all(sender.wait() is not None for sender in stage.sent)
    assert stage.model.usage()["batch"].used == 0


def test_as_many_pieces_are_computed_together_as_their_bytes_hold(acoustic: Acoustic) -> None:
    acoustic.hold()
    long = [acoustic.send(130, seed=number) for number in range(4)]
    acoustic.settle()
    acoustic.flow.open.set()
    assert all(len(latents(sender)) == 130 for sender in long)
    assert max(shape[0] for shape in acoustic.flow.steps) == 2
    assert acoustic.model.usage()["batch"].peak == 60


def test_short_pieces_are_more_in_the_same_bytes(acoustic: Acoustic) -> None:
    acoustic.hold()
    short = [acoustic.send(40, seed=number) for number in range(6)]
    acoustic.settle()
    acoustic.flow.open.set()
    assert all(len(latents(sender)) == 40 for sender in short)
    assert max(shape[0] for shape in acoustic.flow.steps) == 6


def test_a_piece_that_can_never_be_computed_fails_alone(acoustic: Acoustic) -> None:
    acoustic.hold()
    beside = acoustic.send(40)
    refused = error(acoustic.send(200, turn="huge"))
    assert isinstance(refused, InvalidInput)
    assert (refused.reason, refused.turn) == ("bytes", "huge")
    assert refused.message == "the piece takes 400 bytes to be computed; the stage has 60"
    acoustic.flow.open.set()
    assert len(latents(beside)) == 40


def test_batches_leak_nothing_when_turns_are_cancelled_and_pieces_fail(acoustic: Acoustic) -> None:
    random = Random(4)
    for number in range(60):
        phoneme = random.choice([7, 101, 102, 103])
        frames = random.choice([40, 130, 200])
        acoustic.send(
            frames, turn=f"t{number}", phoneme=phoneme, deadline_ms=random.choice([0, 0, 1])
        )
        if random.random() < 0.4:
            acoustic.cancel(f"t{random.randrange(number + 1)}")


SETTINGS: list[tuple[type[Any], Mapping[str, str], str]] = [
    (EncodeSettings, {"row_bytes": "lots"}, "not lengths with their bytes"),
    (EncodeSettings, {"max_batch_bytes": "-1"}, "must not be negative"),
    (EncodeSettings, {"mels": "0"}, "mels and width must be at least 1"),
    (AcousticSettings, {"row_bytes": "80"}, "a size is a number"),
    (AcousticSettings, {"max_batch_bytes": "-1"}, "must not be negative"),
]


@pytest.mark.parametrize(("kind", "changed", "told"), SETTINGS)
def test_a_budget_that_cannot_be_read_is_refused(
    kind: type[Any], changed: Mapping[str, str], told: str
) -> None:
    known = ENCODE if kind is EncodeSettings else ACOUSTIC
    config = ModelConfig("m", Path(), "1", {**known, **changed}, ())
    with pytest.raises(ValueError, match=told):
        config.settings(kind)
