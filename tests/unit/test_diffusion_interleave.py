"""The model `acoustic` with `mode: interleave`: members at different steps share a call."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fakes import (
    MODELS,
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    refusal,
)
from tests.unit.acoustic_stage import (
    DEAF_PHONEME,
    LAST,
    NAN_PHONEME,
    REFUSED_PHONEME,
    FakeFlow,
    Stage,
    Turnstile,
    interleaved,
    latents,
    served,
)

__all__ = ["interleaved"]


def rounded(times: list[list[float]]) -> list[list[float]]:
    return [[round(t, 4) for t in row] for row in times]


def widths(flow: FakeFlow) -> list[tuple[int, int]]:
    """Members and padded frames of every velocity call."""
    return [(shape[0], shape[1]) for shape in flow.steps]


def test_a_newcomer_joins_at_the_next_step_and_padding_follows_who_is_there(
    interleaved: Stage,
) -> None:
    gate = Turnstile(interleaved.flow, 1)
    early = interleaved.send(30, seed=1)
    gate.wait()
    late = interleaved.send(60, seed=2)
    interleaved.settle()
    gate.go.set()
    together = [latents(early), latents(late)]
    assert widths(interleaved.flow) == [(1, 32), (1, 32), (2, 64), (2, 64), (1, 64), (1, 64)]
    assert interleaved.flow.times == [[0], [0.25], [0.5, 0], [0.75, 0.25], [0.5], [0.75]]
    assert interleaved.flow.conditions == [(1, 32), (1, 64)], "each has its condition made once"
    alone = [latents(interleaved.send(30, seed=1)), latents(interleaved.send(60, seed=2))]
    for shared, single in zip(together, alone, strict=True):
        assert np.abs(shared - single).max() < 1e-6


def test_solvers_and_numbers_of_steps_share_calls(interleaved: Stage) -> None:
    interleaved.hold(steps=1)
    euler = interleaved.send(24, steps=3, piece=(0, 0), turn="a")
    midpoint = interleaved.send(24, steps=2, solver="midpoint", piece=(0, 0), turn="b")
    interleaved.settle()
    interleaved.flow.open.set()
    assert euler.error() == midpoint.error() == ""
    expected = [[0, 0], [0.3333, 0.25], [0.6667, 0.5], [0.75]]
    assert rounded(interleaved.flow.times[1:]) == expected


def test_a_call_never_mixes_buckets(interleaved: Stage) -> None:
    interleaved.hold()
    senders = [interleaved.send(frames) for frames in (40, 120, 60, 150, 300)]
    interleaved.settle()
    interleaved.flow.open.set()
    assert all(sender.error() == "" for sender in senders)
    for lengths in interleaved.flow.lengths:
        assert len({-(-length // 80) for length in lengths}) == 1


def test_a_first_piece_takes_the_next_step_and_the_later_one_goes_on_afterwards(
    interleaved: Stage,
) -> None:
    """Of other lengths: the later piece rests meanwhile, and nothing of it is made twice."""
    earlier = interleaved.send(40, piece=(0, 0), turn="a")
    assert earlier.error() == ""
    interleaved.flow.times.clear()
    interleaved.flow.lengths.clear()
    gate = Turnstile(interleaved.flow, 1)
    later = interleaved.send(40, piece=(1, LAST), turn="a")
    gate.wait()
    first = interleaved.send(120, turn="b")
    interleaved.settle()
    gate.go.set()
    assert first.error() == later.error() == ""
    assert interleaved.flow.lengths == [[40]] * 2 + [[120]] * 4 + [[40]] * 2
    assert interleaved.flow.times == [[0], [0.25], [0], [0.25], [0.5], [0.75], [0.5], [0.75]]
    assert len(interleaved.flow.conditions) == 3
    spans = [json.loads(entry) for entry in later.values()[0]["EVENTS"][0]]
    assert [span["what"] for span in spans] == ["queue", "compute", "queue", "compute"]
    ends = [moment for span in spans for moment in (span["start_ns"], span["end_ns"])]
    assert ends == sorted(ends), "a pause is waiting and not computing"
    assert all(spans[n]["end_ns"] == spans[n + 1]["start_ns"] for n in range(3))


@pytest.mark.parametrize("step", range(4))
def test_a_member_cancelled_at_any_step_is_not_in_the_next_one(
    interleaved: Stage, step: int
) -> None:
    interleaved.hold(steps=1)
    doomed = interleaved.send(70, turn="doomed")
    other = interleaved.send(40, turn="other", seed=5)
    interleaved.settle()
    gate = Turnstile(interleaved.flow, 1 + step)
    interleaved.flow.open.set()
    gate.wait()
    interleaved.cancel("doomed")
    interleaved.settle()
    assert not doomed.ended.is_set(), "its call is under way"
    gate.go.set()
    assert "code=CANCELLED" in doomed.error()
    assert len(doomed.values()) == 1
    kept, left = [(2, 80)] * (step + 1), [(1, 48)] * (3 - step)
    shared = latents(other)
    assert widths(interleaved.flow)[1:] == [*kept, *left]
    assert np.abs(shared - latents(interleaved.send(40, seed=5))).max() < 1e-6


def test_a_paused_member_that_is_cancelled_is_answered_at_once(interleaved: Stage) -> None:
    assert interleaved.send(40, piece=(0, 0), turn="a").error() == ""
    gate = Turnstile(interleaved.flow, 0)
    paused = interleaved.send(40, piece=(1, LAST), turn="a")
    gate.wait()
    first = interleaved.send(120, turn="b")
    interleaved.settle()
    second = Turnstile(interleaved.flow, 0)
    gate.go.set()
    second.wait()
    interleaved.cancel("a")
    assert "code=CANCELLED" in paused.error()
    assert not first.ended.is_set()
    second.go.set()
    assert first.error() == ""


@pytest.mark.parametrize(
    ("phoneme", "message"),
    [
        (NAN_PHONEME, "not finite"),
        (DEAF_PHONEME, "without content"),
        (REFUSED_PHONEME, "index out of range"),
    ],
)
def test_a_bad_newcomer_fails_alone_beside_those_under_way(
    interleaved: Stage, phoneme: int, message: str
) -> None:
    gate = Turnstile(interleaved.flow, 1)
    early = interleaved.send(40, seed=1)
    gate.wait()
    bad = interleaved.send(inputs={"PROSODY": np.array([[[phoneme, 40, 3]]], np.int32)})
    good = interleaved.send(40, seed=2)
    interleaved.settle()
    gate.go.set()
    assert "code=STAGE_FAILED" in bad.error()
    assert message in bad.error()
    for seed, sender in ((1, early), (2, good)):
        alone = latents(interleaved.send(40, seed=seed))
        assert np.abs(latents(sender) - alone).max() < 1e-6


def test_a_call_that_fails_is_made_for_each_alone(interleaved: Stage) -> None:
    """Who is refused ends; the others lose no step and make none twice."""
    step = interleaved.flow.step

    def picky(request: InferenceRequest) -> InferenceResponse:
        values = request.values()
        refused = (values["LENGTH"] == 50) & (values["TIME"] == 0.5)
        return refusal("row refused") if refused.any() else step(request)

    MODELS["acoustic_step"] = picky
    interleaved.hold(steps=1)
    good = [interleaved.send(40, seed=1), interleaved.send(60, seed=2)]
    bad = interleaved.send(50, seed=3)
    interleaved.settle()
    interleaved.flow.open.set()
    assert "row refused" in bad.error()
    for seed, frames, sender in ((1, 40, good[0]), (2, 60, good[1])):
        alone = latents(interleaved.send(frames, seed=seed))
        assert np.abs(latents(sender) - alone).max() < 1e-6
    assert [len(row) for row in interleaved.flow.lengths[1:6]] == [3, 3, 1, 1, 2]


def starts(stage: Stage) -> dict[int, NDArray[np.float32]]:
    """X at time 0 of every member that begins from now on, by its length."""
    seen: dict[int, NDArray[np.float32]] = {}

    def step(request: InferenceRequest) -> InferenceResponse:
        values = request.values()
        for x, t, length in zip(values["X"], values["TIME"], values["LENGTH"], strict=True):
            if t[0] == 0:
                seen[int(length[0])] = x[: int(length[0])].copy()
        return stage.flow.step(request)

    MODELS["acoustic_step"] = step
    return seen


def joined_midway(stage: Stage, wishes: list[dict[str, Any]]) -> list[NDArray[np.float32]]:
    """Latents of requests of which the first is under way when the others come."""
    gate = Turnstile(stage.flow, 1)
    senders: list[InferenceResponseSender] = [stage.send(**wishes[0])]
    gate.wait()
    senders += [stage.send(**wish) for wish in wishes[1:]]
    stage.settle()
    gate.go.set()
    return [latents(sender) for sender in senders]


WISHES = [
    {"frames": 31, "seed": 1, "steps": 4},
    {"frames": 80, "seed": 2, "steps": 7},
    {"frames": 55, "seed": 2**62, "steps": 2, "solver": "midpoint"},
    {"frames": 79, "seed": 4, "steps": 32},
    {"frames": 161, "seed": 5, "steps": 3, "solver": "midpoint"},
    {"frames": 48, "seed": 6, "steps": 1},
]


def test_a_member_has_the_same_result_in_either_mode_and_alone(tmp_path: Path) -> None:
    found: dict[str, list[NDArray[np.float32]]] = {}
    for mode in ("lock", "interleave"):
        for stage in served(tmp_path / mode, mode=mode):
            found[mode] = joined_midway(stage, WISHES)
            MODELS["acoustic_step"] = stage.flow.step
            found[f"{mode} alone"] = [latents(stage.send(**wish)) for wish in WISHES]
    for other in ("interleave", "lock alone", "interleave alone"):
        for one, same in zip(found["lock"], found[other], strict=True):
            assert np.abs(one - same).max() < 1e-6


def test_the_noise_of_a_seed_is_bit_equal_in_either_mode_and_in_any_company(tmp_path: Path) -> None:
    found = []
    for mode in ("lock", "interleave"):
        for stage in served(tmp_path / mode, mode=mode):
            seen = starts(stage)
            stage.hold(steps=1)
            senders = [stage.send(**wish) for wish in WISHES]
            stage.settle()
            stage.flow.open.set()
            assert all(sender.error() == "" for sender in senders)
            found.append(dict(seen))
            seen.clear()
            for wish in WISHES:
                stage.send(**wish).wait()
            found[-1].pop(24)
            found.append(dict(seen))
    assert all(one.keys() == {wish["frames"] for wish in WISHES} for one in found)
    for one in found[1:]:
        assert all((one[frames] == found[0][frames]).all() for frames in one)


@pytest.mark.parametrize("seed", range(3))
def test_random_company_changes_nobody(interleaved: Stage, seed: int) -> None:
    """Pieces that come at any step, of few and many steps, some cancelled, are as if alone."""
    rng = np.random.default_rng(seed)
    wishes = [
        {
            "frames": int(rng.integers(10, 170)),
            "seed": int(rng.integers(100)),
            "steps": int(rng.integers(1, 9)),
            "solver": str(rng.choice(["euler", "midpoint"])),
        }
        for _ in range(30)
    ]
    senders = []
    for number, wish in enumerate(wishes):
        senders.append(interleaved.send(**wish, turn=f"t{number}"))
        if rng.random() < 0.2:
            interleaved.cancel(f"t{int(rng.integers(number + 1))}")
        if rng.random() < 0.5 or number % 6 == 5:
            senders[int(rng.integers(number + 1))].wait()
    answered = [pair for pair in zip(wishes, senders, strict=True) if not pair[1].error()]
    assert len(answered) > len(wishes) // 2
    for wish, sender in answered:
        alone = latents(interleaved.send(**wish))
        assert np.abs(latents(sender) - alone).max() < 1e-6
