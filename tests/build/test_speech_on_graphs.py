"""The shipped flow decoder and vocoder, from PROSODY to sound, at the edges of a piece."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from loadtest.stages.flow_graphs import CONDITION, STEP, Graphs
from python_backends.diffusion_lock.chunks import VocoderInput, plan
from python_backends.diffusion_lock.flow import FlowDecoder
from python_backends.diffusion_lock.graphs import FlowGraphs
from python_backends.diffusion_lock.score import Key, Score, to_score
from python_backends.diffusion_lock.source import load_voices
from python_backends.errors import InvalidInput, StageError
from python_backends.speech import CHANNELS, HOP
from python_backends.spoken import Phonemizer

REPOSITORY = Path(__file__).parents[2] / "model_repository"
MAX_FRAMES = 1600
FRAMES_EACH, PITCH = 8, 16
AUDIBLE_RMS = 1e-3
SENTENCE = "Hello there, my friend, how are you today? "
Frames = NDArray[np.float32]


@dataclass(eq=False)
class Piece:
    score: Score
    key: Key
    seed: int
    number: int = 0
    error: StageError | None = None


@cache
def phonemes() -> list[int]:
    return Phonemizer()(SENTENCE)


def piece(frames: int, seed: int = 0) -> Piece:
    """A sentence over and over, its last phoneme cut so that it lasts exactly so many frames."""
    count = -(-frames // FRAMES_EACH)
    said = [phonemes()[at % len(phonemes())] for at in range(count)]
    durations = [FRAMES_EACH] * (count - 1) + [frames - FRAMES_EACH * (count - 1)]
    rows = [(one, lasting, PITCH) for one, lasting in zip(said, durations, strict=True)]
    score = to_score(np.array([rows], np.int32), MAX_FRAMES, voice=0, stride=0)
    return Piece(score, Key(score.bucket(MAX_FRAMES), 4, "euler"), seed)


@pytest.fixture(scope="module")
def decoder() -> FlowDecoder:
    return FlowDecoder(FlowGraphs(Graphs(), CONDITION, STEP))


@pytest.fixture(scope="module")
def vocoder() -> Any:
    return onnxruntime.InferenceSession(REPOSITORY / "vocoder" / "1" / "model.onnx")


def frames_of(decoder: FlowDecoder, *members: Piece) -> list[Frames]:
    outcomes = decoder.decode(members[0].key, members)
    assert not any(isinstance(one, StageError) for one in outcomes), outcomes
    return [one for one in outcomes if isinstance(one, np.ndarray)]


def sound(vocoder: Any, frames: Frames, *, stream: bool = False) -> list[NDArray[np.float32]]:
    """Samples of each chunk."""
    voice = load_voices(REPOSITORY / "acoustic" / "1" / "speech.json")["alto"]
    source = VocoderInput.of(frames, voice, seed=0, piece=0)
    chunks = [source.chunk(*one) for one in plan(source.frames, stream=stream)]
    return [vocoder.run(["SPEECH"], chunk)[0][0] for chunk in chunks]


def rms(samples: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(samples**2)))


@pytest.mark.parametrize("frames", [79, 80, 81, MAX_FRAMES - 1, MAX_FRAMES])
def test_a_piece_at_the_edge_of_its_bucket_is_spoken_to_its_last_frame(
    decoder: FlowDecoder, vocoder: Any, frames: int
) -> None:
    """Public cases H8 and I2: neither an error nor a blank tail."""
    (found,) = frames_of(decoder, piece(frames))
    assert found.shape == (frames, CHANNELS)
    (speech,) = sound(vocoder, found)
    assert speech.shape == (frames * HOP,)
    for start in range(0, frames, 40):
        part = speech[start * HOP : (start + 40) * HOP]
        assert len(part) < 8 * HOP or rms(part) > AUDIBLE_RMS, start


def test_one_frame_more_than_the_longest_piece_is_refused() -> None:
    """Public case H8."""
    with pytest.raises(InvalidInput, match=r"lasts 20.01 s; .* at most 20 s"):
        piece(MAX_FRAMES + 1)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_a_frame_or_two_are_spoken(decoder: FlowDecoder, vocoder: Any, frames: int) -> None:
    """Public case H9: the least that a phoneme can be, to the vocoder."""
    (found,) = frames_of(decoder, piece(frames))
    (speech,) = sound(vocoder, found)
    assert speech.shape == (frames * HOP,)
    assert np.isfinite(speech).all()


@pytest.mark.parametrize("lengths", [(33, 34, 35), (17, 1), (79, 66, 78, 65)])
def test_a_batch_whose_rows_are_all_shorter_than_its_padding_is_each_alone(
    decoder: FlowDecoder, lengths: tuple[int, ...]
) -> None:
    """Public case C3: rows are padded to multiples of 16, which none of these is."""
    members = [piece(frames, seed) for seed, frames in enumerate(lengths)]
    for one, frames in zip(members, frames_of(decoder, *members), strict=True):
        (alone,) = frames_of(decoder, one)
        np.testing.assert_allclose(frames, alone, atol=1e-4)


@pytest.mark.parametrize("frames", [34, 104, 113, 400])
def test_no_seam_is_heard_between_chunks(decoder: FlowDecoder, vocoder: Any, frames: int) -> None:
    """Public case I3: chunks join to the sound of the whole, sample by sample."""
    (found,) = frames_of(decoder, piece(frames))
    (whole,), chunks = sound(vocoder, found), sound(vocoder, found, stream=True)
    joined = np.concatenate(chunks)
    assert sum(map(len, chunks)) == len(whole) == frames * HOP
    np.testing.assert_allclose(joined, whole, atol=1e-4)
    jumps = np.abs(np.diff(joined))
    seams = np.cumsum([len(chunk) for chunk in chunks[:-1]], dtype=np.int64) - 1
    assert len(seams) > 0
    assert jumps[seams].max(initial=0) <= np.delete(jumps, seams).max()
    np.testing.assert_allclose(jumps[seams], np.abs(np.diff(whole))[seams], atol=2e-4)
