"""What may leave the flow decoder as speech, and which modes there are."""

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.diffusion_lock.flow import QUIETEST_RMS, spoken
from python_backends.diffusion_lock.score import Score, to_score
from python_backends.diffusion_lock.settings import AcousticSettings
from python_backends.errors import StageFailed
from python_backends.speech import CHANNELS, LATENT

BREATH = 10
"""Frames of leading silence in `score` beyond the 6 that are kept."""


def score(frames: int = 50) -> Score:
    rows = [[(0, BREATH + 6, 0), (7, frames - BREATH - 6, 3)]]
    return to_score(np.array(rows, np.int32), 1600, voice=0, stride=0)


def frames(rms: float = 1.0) -> NDArray[np.float32]:
    return np.full((50, CHANNELS), rms, np.float32)


def test_speech_leaves_without_its_breath() -> None:
    found = spoken(frames(), score())
    assert not isinstance(found, StageFailed)
    assert found.shape == (50 - BREATH, CHANNELS)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(BREATH, 0), (49, LATENT), (30, LATENT + 1)])
def test_one_value_that_is_not_finite_is_an_error(wrong: float, place: tuple[int, int]) -> None:
    """Public case I1."""
    broken = frames()
    broken[place] = wrong
    assert "not finite" in str(spoken(broken, score()))


@pytest.mark.parametrize(("rms", "is_speech"), [(0.0, False), (0.9, False), (1.1, True)])
def test_latents_near_zero_are_an_error(rms: float, is_speech: bool) -> None:
    """Public case I1."""
    found = spoken(frames(rms * QUIETEST_RMS), score())
    assert isinstance(found, StageFailed) != is_speech


def test_pitch_and_voicing_do_not_count_as_content() -> None:
    silent = frames(0.0)
    silent[:, LATENT:] = 1.0
    assert "without content" in str(spoken(silent, score()))


def test_a_loud_breath_does_not_count_as_content() -> None:
    silent = frames(0.0)
    silent[:BREATH] = 1.0
    assert "without content" in str(spoken(silent, score()))


def settings(**changed: str) -> AcousticSettings:
    sizes = {"steps": 4, "max_batch": 4, "max_frames": 1600, "max_waiting": 8}
    return AcousticSettings("condition", "step", solver="euler", **sizes, **changed)  # type: ignore[arg-type]


def test_the_lock_is_the_default_and_other_modes_are_refused() -> None:
    assert settings().mode == "lock"
    assert settings(mode="interleave").mode == "interleave"
    with pytest.raises(ValueError, match="'locked' is none of"):
        settings(mode="locked")
