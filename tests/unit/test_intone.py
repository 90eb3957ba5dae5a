"""The prosody task: pieces of a turn, read on an engine that draws the same for everybody."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from python_backends.ar_loop.loop import DecodeLoop
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.intone import Intone
from python_backends.bridge import Request
from python_backends.pieces import LAST_PIECE, NO_SOUND
from python_backends.slot_engine.command import Command, Drawn, Result, to_inputs
from python_backends.spoken import Phonemizer
from tests import fakes

SETTINGS = LoopSettings(
    task="intone",
    step_model="step",
    engine="in_process",
    slots=4,
    capacity=32,
    prefill_chunk=1,
    max_new_tokens=32,
    max_waiting=16,
)


class SteadyEngine:
    """Every phoneme lasts 3 ticks on pitch 7; numbers of `ill_row` are not finite."""

    def __init__(self) -> None:
        self.ill_row: int | None = None
        self.voices: list[list[int]] = []

    def run(self, command: Command) -> Result:
        to_inputs(command)
        if command.prefill and command.prefill.start == 0:
            self.voices.append(command.prefill.context["VOICE"].tolist())
        prefill = self._drawn([command.prefill.row]) if command.prefill else None
        rows = range(len(command.decode.tokens)) if command.decode else range(0)
        return Result(prefill, self._drawn(list(rows)) if command.decode else None)

    def _drawn(self, rows: list[int]) -> Drawn:
        tokens = np.array([[-1, -1] if row == self.ill_row else [3, 7] for row in rows], np.int64)
        return Drawn(tokens, np.zeros(len(rows), np.float32))


def phonemes(line: str) -> list[int]:
    if "①" in line:
        return [int("①")]
    return [ord(letter) for letter in line if letter.isalpha()]


@cache
def phonemizer() -> Phonemizer:
    return Phonemizer()


class Bench:
    def __init__(self, read: Callable[[str], list[int]] = phonemes) -> None:
        self.engine = SteadyEngine()
        self.loop = DecodeLoop(Intone(read, SETTINGS), [self.engine], SETTINGS)
        self.left: list[str] = []

    def arrive(
        self, line: str, piece: int | None = None, *, last: bool = False, **parameters: Any
    ) -> fakes.InferenceResponseSender:
        inputs = {"TEXT": fakes.text(line)}
        if piece is not None:
            inputs["PIECE"] = np.array([[piece, 0, LAST_PIECE if last else 0]], np.int32)
        native = fakes.arriving(inputs, parameters=parameters)
        request = Request(native, "prosody", lambda one: self.left.append(one.text("TEXT")))
        request.parse_options()
        self.loop._open(request)
        return native.sender

    def step(self) -> None:
        for lane in self.loop._lanes:
            if lane.flight is not None:
                lane.flight.done.exception()
        self.loop.step()

    def run(self) -> None:
        while self.loop.members():
            self.step()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_line_gets_a_duration_and_a_pitch_for_every_phoneme(bench: Bench) -> None:
    sender = bench.arrive("ab")
    bench.run()
    prosody = sender.values()[0]["PROSODY"][0]
    assert prosody.tolist() == [[0, 6, 7], [97, 6, 7], [98, 6, 7], [0, 6, 7]]


def test_pieces_leave_in_order_although_the_shorter_ones_are_made_first(bench: Bench) -> None:
    bench.arrive("a long one", 0)
    bench.arrive("shorter", 1)
    bench.arrive("!", 2)
    bench.arrive("x", 3, last=True)
    bench.run()
    assert bench.left == ["a long one", "shorter", "!", "x"]


def test_a_piece_without_its_forerunners_is_answered(bench: Bench) -> None:
    sender = bench.arrive("late", 5)
    bench.run()
    assert len(sender.values()) == 1


def test_the_others_of_a_turn_are_answered_when_one_piece_fails(bench: Bench) -> None:
    senders = [bench.arrive("longest of all", 0), bench.arrive("fails", 1)]
    senders += [bench.arrive("made", 2), bench.arrive("more made", 3, last=True)]
    for _ in range(5):
        bench.step()
    bench.engine.ill_row = 1
    bench.step()
    bench.engine.ill_row = None
    bench.run()
    assert ["not finite" in sender.error() for sender in senders] == [False, True, False, False]


@pytest.mark.parametrize("line", ["①", "long" * 10, "blank " + " " * 1000])
def test_text_that_cannot_be_read_fails_alone(bench: Bench, line: str) -> None:
    well, ill = bench.arrive("well"), bench.arrive(line)
    bench.run()
    assert "code=INVALID_INPUT" in ill.error()
    assert len(well.values()) == 1


def test_the_largest_seed_is_taken_for_every_piece(bench: Bench) -> None:
    senders = [bench.arrive("a", n, last=n == 1, seed=2**63 - 1) for n in range(2)]
    bench.run()
    assert all(sender.error() == "" for sender in senders)


@pytest.mark.parametrize(
    "line", ["", " ", "\n", "...", "?!", "\u2014", "👍", "你好", "```\nx\n```"]
)
def test_what_cannot_be_said_is_answered_at_once_and_without_sound(line: str) -> None:
    """Public cases H1 and H3."""
    bench = Bench(phonemizer())
    sender = bench.arrive(line)
    assert not bench.loop.members()
    assert sender.values()[0]["PIECE"][0].tolist() == [0, 0, LAST_PIECE | NO_SOUND]


@pytest.mark.parametrize("line", ["hello", "3", "**5%** 👍", "https://example.com", "①"])
def test_what_can_be_said_is_spoken_without_a_mark_at_its_end(line: str) -> None:
    """Public case H2."""
    bench = Bench(phonemizer())
    sender = bench.arrive(line)
    bench.run()
    assert len(sender.values()[0]["PROSODY"][0]) > 2


def test_the_engine_is_told_who_speaks(bench: Bench) -> None:
    bench.arrive("abc")
    bench.arrive("abc", voice="baritone")
    bench.run()
    assert bench.engine.voices == [[0], [1]]
