"""The real flow decoder: a piece is the same locked, interleaved and alone, to its sound."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from loadtest.stages.flow_graphs import (
    CONDITION,
    STEP,
    Graphs,
    StepCall,
    lock_violations,
    step_violations,
)
from loadtest.stages.flow_pieces import EQUAL, MIXED, Piece, evaluation_times, pieces, serve
from python_backends.diffusion_lock.chunks import VocoderInput
from python_backends.diffusion_lock.graphs import FlowGraphs
from python_backends.diffusion_lock.sharing import MODES
from python_backends.diffusion_lock.source import load_voices
from python_backends.errors import Cancelled

REPOSITORY = Path(__file__).parents[2] / "model_repository"
TOLERANCE = 1e-4
COUNT = 20
Frames = NDArray[np.float32]


class Ticking:
    """A clock by which every work takes a second, so that who meets whom is always the same."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 1
        return self._now


@pytest.fixture(scope="module")
def graphs() -> Graphs:
    return Graphs()


def decoded(
    graphs: Graphs, mode: str, max_batch: int, gap_s: float, keys: str = MIXED
) -> tuple[list[Piece], list[StepCall]]:
    """Pieces of several steps, solvers and lengths that come one after the other."""
    given = pieces(keys, COUNT, seed=3)
    for number, one in enumerate(given):
        one.at_s = gap_s * number
    graphs.calls.clear()
    flow = FlowGraphs(graphs, CONDITION, STEP)
    serve(MODES[mode](flow, max_batch=max_batch, patience_s=0.5), given, Ticking())
    return given, list(graphs.calls)


def frames_of(given: Sequence[Piece]) -> list[Frames]:
    return [one.frames for one in given if one.frames is not None]


@pytest.fixture(scope="module")
def alone(graphs: Graphs) -> list[Frames]:
    return frames_of(decoded(graphs, "lock", 1, 0.0)[0])


@pytest.mark.parametrize(
    ("mode", "gap_s"), [("lock", 0.0), ("interleave", 0.0), ("interleave", 1.5)]
)
def test_a_piece_is_the_same_as_alone(
    graphs: Graphs, alone: list[Frames], mode: str, gap_s: float
) -> None:
    """Public case C13: steps, solvers and lengths in one crowd; a locked call never mixes them."""
    given, calls = decoded(graphs, mode, 4, gap_s)
    assert max(len(call.rows) for call in calls) > 1, "nobody shared a call"
    expected = [evaluation_times(one.key) for one in given if one.key is not None]
    assert step_violations(calls, expected) == 0
    assert (lock_violations(calls) == 0) == (mode == "lock")
    for one, single in zip(frames_of(given), alone, strict=True):
        np.testing.assert_allclose(one, single, atol=TOLERANCE)


def test_with_room_for_eight_a_piece_is_what_it_is_with_room_for_one(
    graphs: Graphs,
) -> None:
    """Public case C16: within a tolerance in company, since other shapes round otherwise; to the
    last bit where a call has one row, whatever room there was."""
    together, calls = decoded(graphs, "lock", 8, 0.0, EQUAL)
    assert len(calls[0].rows) == 8
    runs = [decoded(graphs, "lock", room, 1000.0, EQUAL) for room in (1, 8)]
    assert all(len(call.rows) == 1 for _, calls in runs for call in calls)
    (one_room, eight_rooms) = (frames_of(given) for given, _ in runs)
    for one, other, crowded in zip(one_room, eight_rooms, frames_of(together), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(crowded, one, atol=TOLERANCE)


def test_interleaved_pieces_sound_as_they_do_alone(graphs: Graphs, alone: list[Frames]) -> None:
    vocoder = onnxruntime.InferenceSession(REPOSITORY / "vocoder" / "1" / "model.onnx")
    voice = load_voices(REPOSITORY / "acoustic" / "1" / "speech.json")["alto"]
    shared = frames_of(decoded(graphs, "interleave", 4, 1.5)[0])
    for one, single in list(zip(shared, alone, strict=True))[:4]:
        sounds = [
            vocoder.run(["SPEECH"], source.chunk(0, source.frames))[0]
            for source in (VocoderInput.of(f, voice, seed=1, piece=0) for f in (one, single))
        ]
        assert np.sqrt(np.mean(sounds[1] ** 2)) > 1e-3
        np.testing.assert_allclose(sounds[0], sounds[1], atol=TOLERANCE)


def test_a_piece_cancelled_midway_changes_nobody(graphs: Graphs, alone: list[Frames]) -> None:
    given = pieces(MIXED, COUNT, seed=3)
    flow = FlowGraphs(graphs, CONDITION, STEP)
    sharing = MODES["interleave"](flow, max_batch=4, patience_s=0.5)
    for one in given:
        sharing.add(one, 0.0)
    doomed: list[Piece] = []
    while (work := sharing.start(0.0)) is not None:
        outcomes = work.run()
        sharing.finish()
        for one, outcome in zip(work.members, outcomes, strict=True):
            if isinstance(outcome, np.ndarray):
                one.frames = outcome
        going = [one for one in work.members if one.frames is None]
        if len(doomed) < 3 and len(going) > 1:
            doomed.append(going[0])
            going[0].error = Cancelled("the caller has left")
            sharing.drop(lambda one: one.error is not None)
    assert len(doomed) == 3
    assert all(one.frames is None for one in doomed)
    for one, single in zip(given, alone, strict=True):
        if one not in doomed:
            assert one.frames is not None
            np.testing.assert_allclose(one.frames, single, atol=TOLERANCE)
