"""Speaking, on the real server."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from client import audio
from client.responses import TurnChunk
from client.turns import TurnClient, TurnOptions
from client.wer import word_error_rate
from python_backends.errors import InvalidInput
from python_backends.speech import VOICES
from tests.server.conftest import Served

pytestmark = pytest.mark.server

TEXTS = [
    "Got it, two cheeseburgers and a large Coke.",
    "Anything else?",
    "Sorry, we don't have pizza. Would you like something else?",
    "Your total is five dollars, please pull forward to the window.",
]
GREEDY = TurnOptions(speech_temperature=0.0, seed=7)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[TurnClient]:
    with TurnClient(served.grpc_address) as one:
        yield one


def speech(chunks: list[TurnChunk]) -> audio.Floats:
    return np.concatenate([chunk.speech for chunk in chunks])


def pitch_hz(sound: audio.Floats) -> float:
    """Median F0 of the louder frames of 50 ms, by autocorrelation between 60 and 300 Hz."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, 1_200)[::600]
    loud = frames[(power := (frames**2).mean(1)) > np.median(power)]
    spectra = np.abs(np.fft.rfft(loud * np.hanning(1_200), 4_096, axis=1)) ** 2
    likeness = np.fft.irfft(spectra, axis=1)[:, 80:401]
    return float(24_000 / (80 + np.median(likeness.argmax(1))))


def test_what_is_spoken_is_heard_again(client: TurnClient) -> None:
    errors = []
    for line in TEXTS:
        sound = audio.resample(speech(list(client.speak(line))), 24_000, 16_000)
        errors.append(word_error_rate(line, client.transcribe(sound).text))
    assert np.mean(errors) <= 0.1


def test_several_at_once_sound_as_each_alone(client: TurnClient) -> None:
    def say(line: str) -> audio.Floats:
        return speech(list(client.speak(line, options=GREEDY)))

    alone = [say(line) for line in TEXTS]
    with ThreadPoolExecutor(len(TEXTS)) as pool:
        together = list(pool.map(say, TEXTS))
    for one, other in zip(alone, together, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() < 1e-3


def test_chunks_join_to_what_is_spoken_in_one_piece(client: TurnClient) -> None:
    whole = TurnOptions(speech_temperature=0.0, seed=7, stream=False)
    chunked = list(client.speak(TEXTS[3], options=GREEDY))
    at_once = list(client.speak(TEXTS[3], options=whole))
    assert len(chunked) > 1
    assert len(at_once) == 1
    assert np.abs(speech(chunked) - speech(at_once)).max() < 1e-4


@pytest.mark.parametrize("line", ["", " ", "\n", "...", "?!", "👍", "—"])
def test_text_with_nothing_to_say_makes_no_sound(client: TurnClient, line: str) -> None:
    chunks = list(client.speak(line))
    assert [chunk.speech.size for chunk in chunks] == [0]


@pytest.mark.parametrize("line", ["hello", "3", "Great 👍🏽!"])
def test_short_text_is_spoken(client: TurnClient, line: str) -> None:
    assert speech(list(client.speak(line))).size > 2_400


def test_text_beyond_the_limit_is_refused_with_the_limit(client: TurnClient) -> None:
    with pytest.raises(InvalidInput, match="at most"):
        list(client.speak("many words " * 200))


def test_voices_can_be_told_apart_and_share_a_server(client: TurnClient) -> None:
    """By the pitch of the same words: a fifth apart at least."""

    def say(voice: str) -> audio.Floats:
        options = TurnOptions(speech_temperature=0.0, seed=7, voice=voice)
        return speech(list(client.speak(TEXTS[0], options=options)))

    alone = {voice: say(voice) for voice in VOICES}
    with ThreadPoolExecutor(len(VOICES)) as pool:
        together = dict(zip(VOICES, pool.map(say, VOICES), strict=True))
    for voice in VOICES:
        assert np.abs(alone[voice] - together[voice]).max() < 1e-3
    alto, baritone = (pitch_hz(alone[voice]) for voice in VOICES)
    assert 0.5 < baritone / alto < 0.75


def test_an_unknown_voice_is_refused_with_the_known_ones(client: TurnClient) -> None:
    with pytest.raises(InvalidInput, match="'tenor' is unknown; known: alto, baritone"):
        list(client.speak(TEXTS[0], options=TurnOptions(voice="tenor")))


def test_without_a_solver_any_number_of_steps_is_spoken(client: TurnClient) -> None:
    for steps in (1, 3, 8):
        options = TurnOptions(speech_temperature=0.0, steps=steps)
        assert np.sqrt(np.mean(speech(list(client.speak(TEXTS[1], options=options))) ** 2)) > 1e-3
    with pytest.raises(InvalidInput, match="1, 2, 4 are accepted"):
        list(client.speak(TEXTS[1], options=TurnOptions(steps=3, solver="shortcut")))


@pytest.mark.parametrize(
    ("solver", "steps"),
    [(solver, steps) for solver in ("euler", "midpoint") for steps in (1, 2, 32)]
    + [("shortcut", steps) for steps in (1, 2, 4)],
)
def test_solver_and_steps_may_be_chosen(client: TurnClient, solver: str, steps: int) -> None:
    options = TurnOptions(speech_temperature=0.0, steps=steps, solver=solver)
    sound = speech(list(client.speak(TEXTS[1], options=options)))
    assert np.sqrt(np.mean(sound**2)) > 1e-3


def test_the_same_seed_gives_the_same_sound_and_another_one_another(client: TurnClient) -> None:
    def say(seed: int) -> audio.Floats:
        options = TurnOptions(speech_temperature=0.5, seed=seed)
        return speech(list(client.speak(TEXTS[0], options=options)))

    first, again, other = say(1), say(1), say(2)
    assert np.array_equal(first, again)
    assert not np.array_equal(first[: min(len(first), len(other))], other[: len(first)])
