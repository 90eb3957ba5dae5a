"""PROSODY checked and expanded to frames."""

import numpy as np
import pytest

from python_backends.diffusion_lock.score import Score, to_score
from python_backends.errors import InvalidInput


def prosody(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array([rows], np.int32).reshape(1, -1, 3)


def scored(rows: np.ndarray, max_frames: int) -> Score:
    return to_score(rows, max_frames, voice=1, stride=3)


def test_durations_become_frames() -> None:
    score = scored(prosody((0, 4, 0), (43, 10, 17), (0, 2, 0)), 1600)
    assert score.frames == 16
    assert score.frame_phoneme.tolist() == [0] * 4 + [1] * 10 + [2] * 2
    assert score.frame_position.shape == (16, 3)
    assert score.pitch.tolist() == [0, 17, 0]
    assert (score.voice, score.stride) == (1, 3)


@pytest.mark.parametrize(("frames", "bucket"), [(1, 80), (80, 80), (81, 160), (1599, 1600)])
def test_the_bucket_is_the_length_rounded_up(frames: int, bucket: int) -> None:
    assert scored(prosody((1, frames, 0)), 1600).bucket(1600) == bucket


def test_the_last_bucket_is_no_longer_than_the_limit() -> None:
    assert scored(prosody((1, 99, 0)), 100).bucket(100) == 100


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no phonemes"),
        ([(1, 0, 0)], r"lasts 0.00 s; a piece of more than 0 and at most 20 s"),
        ([(1, 800, 0), (2, 801, 0)], r"lasts 20.01 s; .* at most 20 s"),
        ([(178, 4, 0)], "phoneme of 178 to 178; 0 to 177"),
        ([(-1, 4, 0)], "phoneme of -1"),
        ([(1, -4, 0)], "duration of -4"),
        ([(1, 2_000_000_000, 0), (1, 2_000_000_000, 0)], "duration"),
        ([(1, 4, 33)], "pitch of 33 to 33; 0 to 32"),
        ([(1, 4, -1)], "pitch of -1"),
    ],
)
def test_prosody_that_cannot_be_spoken_is_refused(
    rows: list[tuple[int, int, int]], message: str
) -> None:
    """Public case H9."""
    with pytest.raises(InvalidInput, match=message):
        scored(prosody(*rows), 1600)


def test_two_columns_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"shape \[1, 4, 2\]"):
        scored(np.zeros((1, 4, 2), np.int32), 1600)


@pytest.mark.parametrize(("lead", "breath"), [(2, 0), (6, 0), (28, 22)])
def test_a_long_breath_before_a_piece_is_decoded_but_not_spoken(lead: int, breath: int) -> None:
    prosody = np.array([[[0, lead, 0], [50, 10, 3], [0, 8, 0]]], np.int32)
    score = scored(prosody, 1600)
    assert score.frames == lead + 18
    assert score.breath == breath


def test_a_piece_that_does_not_begin_with_silence_is_spoken_whole() -> None:
    assert scored(np.array([[[50, 40, 3]]], np.int32), 1600).breath == 0
