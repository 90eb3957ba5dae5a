"""Equal sounds under the encoder's loop: which are equal, and random schedules of sharing them."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.bridge import Arrived, CancelTurn, Inbox, Request
from python_backends.encoder_window.leaf import Encoded
from python_backends.encoder_window.loop import EncodeLoop
from python_backends.encoder_window.windows import Identity
from python_backends.errors import StageFailed
from tests import fakes
from tests.unit.encoder_world import Draining, Leaf, Sound, World

SOUNDS = 5
UNBUILDABLE, REFUSED = 3, 4


class Shelf(Leaf):
    """A turn is named after its sound. While a pass runs, others come and go."""

    def __init__(self, schedule: "Schedule") -> None:
        super().__init__(schedule)
        self.schedule = schedule

    def windows(self, request: Request) -> list[Sound]:
        return [Sound(identity=int(request.turn.split("-")[0]))]

    def build(self, window: Sound) -> Sound:
        if window.identity == UNBUILDABLE:
            raise ZeroDivisionError("an unlucky sound")
        return window

    def encode(self, built: Sequence[Sound]) -> Encoded:
        self.schedule.batches.append(len(built))
        self.schedule.passes.append(tuple(sound.identity for sound in built))
        self.schedule.something_happens()
        refusal = StageFailed("the encoder refuses")
        return Encoded([refusal if s.identity == REFUSED else s.identity for s in built], 0.03)

    def outputs(self, windows: Sequence[Any], results: Sequence[Any]) -> dict[str, NDArray[Any]]:
        return {"HEARD": np.array([results])}


class Watched(Draining):
    """Looks at the loop's books between any two of its rounds."""

    def take(self, timeout_s: float | None) -> list[Any]:
        self.loop.check_integrity()
        return super().take(timeout_s)


class Schedule(World):
    """Seeded callers: some come with the same sound, some leave."""

    def __init__(self, seed: int, **settings: float) -> None:
        super().__init__(**settings)
        self.random = random.Random(seed)
        self.inbox = Inbox()
        self.turns: list[str] = []
        self.passes: list[tuple[int, ...]] = []
        self.loop = EncodeLoop(self.settings, Shelf(self), lambda: self.now, tuple, self.tally)

    def something_happens(self) -> None:
        """Some come, and some cancel."""
        for _ in range(self.random.randrange(4)):
            if self.turns and self.random.random() < 0.3:
                self.inbox.put(CancelTurn(self.random.choice(self.turns[-6:])))
            elif len(self.turns) < 200:
                self.comes(self.random.randrange(SOUNDS))

    def comes(self, sound: int) -> None:
        self.turns.append(f"{sound}-{len(self.turns)}")
        native = fakes.arriving({}, request_id=self.turns[-1])
        self.senders.append(native.sender)
        self.inbox.put(Arrived(Request(native, "encode", lambda _: None)))

    def play(self) -> None:
        while len(self.turns) < 200:
            self.something_happens()
            self.loop.run(Watched(self.inbox, self.loop))
            self.now += 0.01
        for _ in range(20):
            self.loop.run(Watched(self.inbox, self.loop))
            self.now += 1


def shared(schedule: Schedule) -> int:
    return sum(name == "shared_total" for name, *_ in schedule.tally.take())


@pytest.mark.parametrize("gather_ms", [0, 100])
@pytest.mark.parametrize("seed", range(6))
def test_in_random_schedules_everybody_gets_their_own_sound_once(
    seed: int, gather_ms: float
) -> None:
    schedule = Schedule(seed, max_stall_ms=40, gather_ms=gather_ms)
    schedule.play()
    outcomes: Counter[str] = Counter()
    for turn, sender in zip(schedule.turns, schedule.senders, strict=True):
        assert (sender.finals, len(sender.responses)) == (1, 1), turn
        error, sound = sender.error(), int(turn.split("-")[0])
        if error:
            assert "code=CANCELLED" in error or sound in (UNBUILDABLE, REFUSED), error
            assert f"turn={turn}]" in error
        else:
            assert sender.values()[0]["HEARD"].tolist() == [[sound]]
        outcomes["failed" if error else "heard"] += 1
    assert min(outcomes["failed"], outcomes["heard"]) > 10
    assert all(len(set(one)) == len(one) for one in schedule.passes), "a pass had a sound twice"
    assert UNBUILDABLE not in {sound for one in schedule.passes for sound in one}
    assert shared(schedule) > 10


class OneMore(Schedule):
    """Another caller with the same sound comes while the first pass runs."""

    def something_happens(self) -> None:
        if len(self.turns) == 1:
            self.comes(0)


def test_who_joins_a_running_pass_has_begun_and_has_not_waited_in_the_window() -> None:
    schedule = OneMore(seed=0)
    schedule.comes(0)
    schedule.loop.run(Watched(schedule.inbox, schedule.loop))
    told = Counter(name for name, *_ in schedule.tally.take())
    assert schedule.passes == [(0,)]
    assert (told["queue_seconds"], told["window_seconds"], told["shared_total"]) == (2, 1, 1)


def sound(samples: int = 4000, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 0.1, samples).astype(np.float32)


def test_the_same_samples_at_the_same_frames_are_equal() -> None:
    assert Identity(sound(), 1500) == Identity(sound().copy(), 1500)
    assert hash(Identity(sound(), 1500)) == hash(Identity(sound().copy(), 1500))


def test_one_other_sample_other_frames_or_another_length_are_a_different_sound() -> None:
    """The sample is one of those that the hash does not look at."""
    other = sound()
    other[1] += 1e-6
    assert hash(Identity(sound(), 1500)) == hash(Identity(other, 1500))
    assert Identity(sound(), 1500) != Identity(other, 1500)
    assert Identity(sound(), 1500) != Identity(sound(), 3000)
    assert Identity(sound(), 1500) != Identity(sound()[:-1], 1500)


@pytest.mark.parametrize("samples", [1, 2, 63, 64, 65, 480_000])
def test_sounds_of_any_length_can_be_told_apart(samples: int) -> None:
    assert {Identity(sound(samples, seed), 3000) for seed in (0, 1, 0)} == {
        Identity(sound(samples, 0), 3000),
        Identity(sound(samples, 1), 3000),
    }
