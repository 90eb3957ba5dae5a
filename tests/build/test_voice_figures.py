"""What is counted of the voices, made up here so that each can fail; what is kept beside them."""

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from build.voice import ears, evaluate, noisy_turns
from build.voice.curves import by_steps, drawn_steps
from build.voice.evaluate import QUALITY, TARGETS, evaluate_voice
from build.voice.noisy_turns import NoisyOrder, heard_in_noise
from build.voice.report import Report
from build.voice.speaker import EULER, Models, Said, Speaker
from build.voice.spread import duration_spread, f0_spreads
from build.voice.unseen import CASES, SENTENCES
from build.voice.ways import DEFAULT_TEMPERATURE, SOLVERS, TEMPERATURES
from client.turns import TurnOptions
from loadtest.load.runner import bars
from loadtest.stages.reheard import Heard
from loadtest.stages.timbre import centroid_hz, pitch_hz
from python_backends.bridge import Options
from python_backends.diffusion_lock.source import Voice
from python_backends.errors import InvalidInput, StageFailed
from python_backends.speech import CHANNELS, LATENT, VOICES

RATE_HZ = 24_000
VOICE = Voice(0, 5.0, 0.2, (37.5, 225.0, 37.5))
SEMITONE = np.log(2) / 12 / VOICE.log_f0_std
"""In the scale of a frame."""


@pytest.fixture(scope="module")
def models() -> Models:
    return Models.from_git()


def said(*phonemes: tuple[int, float | None]) -> Said:
    """Phonemes of so many frames, and their pitch in semitones; None for unvoiced ones."""
    durations = np.array([frames for frames, _ in phonemes])
    frames = np.zeros((durations.sum(), CHANNELS), np.float32)
    pitches = np.repeat([np.nan if p is None else p for _, p in phonemes], durations)
    frames[:, LATENT] = np.nan_to_num(SEMITONE * pitches, nan=9)
    frames[:, LATENT + 1] = np.where(np.isnan(pitches), -1, 1)
    return Said(durations, frames)


def test_the_spread_of_durations_is_a_share_of_them() -> None:
    assert duration_spread([said((90, 0)), said((110, 0))]) == pytest.approx(0.1)


def test_the_spread_of_pitch_is_that_of_each_phoneme() -> None:
    low, high = said((4, 0), (2, None), (6, 0)), said((4, 6), (2, None), (6, 2))
    np.testing.assert_allclose(f0_spreads([low, high], VOICE), [3, 1], rtol=1e-4)


def test_who_speaks_slower_in_the_same_melody_has_no_spread_of_pitch() -> None:
    quick = said((4, 0), (2, None), (6, 5), (3, -4))
    slow = said((12, 0), (9, None), (7, 5), (4, -4))
    np.testing.assert_allclose(f0_spreads([quick, slow], VOICE), [0, 0, 0], atol=1e-4)
    glide = np.linspace(0, 4, 20, dtype=np.float32)
    readings = [Said(np.array([20 * n]), said((20 * n, 0)).frames) for n in (1, 3)]
    for one, times in zip(readings, (1, 3), strict=True):
        one.frames[:, LATENT] = np.repeat(glide, times)
    np.testing.assert_allclose(f0_spreads(readings, VOICE), [0], atol=1e-4)


def test_a_reading_without_voice_is_left_out() -> None:
    whispered = said((4, None), (6, None))
    both = [said((4, 0), (6, None)), said((4, 2), (6, None))]
    np.testing.assert_allclose(f0_spreads([whispered, *both], VOICE), [1], rtol=1e-4)
    assert f0_spreads([whispered, both[0]], VOICE).size == 0


def test_a_speaker_takes_the_solver_that_the_server_takes(models: Models) -> None:
    plain, named = (
        Speaker(models, steps=8, solver=solver).said("Two tacos.") for solver in ("", EULER)
    )
    assert np.array_equal(plain.frames, named.frames)
    assert plain.durations.sum() == len(plain.frames)
    shortcut, euler = (
        Speaker(models, steps=2, solver=solver).said("Two tacos.").frames for solver in ("", EULER)
    )
    assert shortcut.shape == euler.shape
    assert np.abs(shortcut - euler).max() > 0.01


def test_a_speaker_refuses_what_it_cannot_do(models: Models) -> None:
    with pytest.raises(ValueError, match="'midpoint'; 'euler' and 'shortcut' are known"):
        Speaker(models, solver="midpoint")
    with pytest.raises(InvalidInput, match="1, 2, 4 are accepted"):
        Speaker(models, steps=8, solver="shortcut")


def test_the_voices_are_equally_loud_and_lie_apart(models: Models) -> None:
    """Their mean power over some sentences; a sentence alone differs by 2 dB."""
    sounds = {
        voice: [Speaker(models, voice=voice)(text) for text in SENTENCES[::17]] for voice in VOICES
    }
    alto, baritone = (
        10 * np.log10(np.mean([np.mean(one**2) for one in sounds[voice]])) for voice in VOICES
    )
    assert baritone == pytest.approx(alto, abs=2)
    high, low = (np.mean([pitch_hz(one) for one in sounds[voice]]) for voice in VOICES)
    assert low < 0.75 * high


def test_the_default_temperature_is_that_of_the_server() -> None:
    assert Options().speech_temperature == DEFAULT_TEMPERATURE
    with pytest.raises(InvalidInput, match="0 to 1 is accepted"):
        Options(speech_temperature=TEMPERATURES[-1] + 0.01)


def tone(*parts: tuple[float, float]) -> np.ndarray:
    """Harmonics (Hz, amplitude) for a second, the second half of it 40 dB softer."""
    time_s = np.arange(RATE_HZ) / RATE_HZ
    sound = sum(gain * np.sin(2 * np.pi * hz * time_s) for hz, gain in parts)
    return (np.where(time_s < 0.5, 1, 0.01) * sound).astype(np.float32)


@pytest.mark.parametrize("hz", [80.0, 120.0, 200.0, 290.0])
def test_pitch_is_the_fundamental_of_the_louder_half(hz: float) -> None:
    harmonics = tone((hz, 0.1), (2 * hz, 0.2), (3 * hz, 0.15))
    assert pitch_hz(harmonics) == pytest.approx(hz, rel=0.02)


def test_a_centroid_is_where_the_power_lies() -> None:
    assert centroid_hz(tone((1000, 0.1))) == pytest.approx(1000, rel=0.01)
    assert centroid_hz(tone((1000, 0.1), (2000, 0.1))) == pytest.approx(1500, rel=0.01)


def test_a_word_error_rate_has_its_counts_beside_it() -> None:
    report = Report()
    report.count_words("some", [Heard("one two three", "one too three"), Heard("four", "four")])
    assert report.figures == {"some": 0.25}
    assert report.detail == {"words": {"some": {"errors": 1, "of": 4}}}


class Speaking:
    """A server that makes a sound as long as its seed."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, TurnOptions]] = []

    def speak(self, text: str, *, options: TurnOptions) -> Iterator[Any]:
        self.asked.append((text, options))
        yield SimpleNamespace(speech=np.zeros(options.seed or 0, np.float32))


class Listening:
    """Hears how long a sound is, the silence before it included."""

    def hear(self, sound: np.ndarray) -> str:
        return str(len(sound) - ears.SILENT_SAMPLES)


def test_a_text_is_spoken_with_its_number_as_seed_and_heard_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ears, "Listener", Listening)
    server, alto = Speaking(), TurnOptions(voice="alto")
    with bars() as progress:
        made = ears.Ears(server, progress)  # type: ignore[arg-type]
        assert made.hear(alto, ["a", "b"], "") == [Heard("a", "0"), Heard("b", "1")]
        assert made.hear(alto, ["a", "b"], "", 1000)[1] == Heard("b", "1001")
        assert len(server.asked) == 4
        assert made.hear(alto, ["a"], "") == [Heard("a", "0")]
        assert len(server.asked) == 4
        warm = replace(alto, speech_temperature=1.0)
        sounds = made.sounds(warm, ["a", "b"], "")
        assert made.hear(warm, ["a", "b"], "", sounds=sounds)[1] == Heard("b", "1")
    assert server.asked[4:] == [(text, replace(warm, seed=at)) for at, text in enumerate("ab")]


class Ears:
    """Hears everything but the baritone right; sounds are tones of a voice's pitch."""

    def __init__(self, client: Any, progress: Any) -> None:
        self.client, self.progress = client, progress
        self.asked: list[TurnOptions] = []

    def sounds(
        self, asked: TurnOptions, texts: Sequence[str], told: str, first_seed: int = 0
    ) -> list[np.ndarray]:
        self.asked.append(asked)
        return [tone((120 if asked.voice == "baritone" else 200, 0.1)) for _ in texts]

    def hear(self, asked: TurnOptions, texts: Sequence[str], *_: Any, **__: Any) -> list[Heard]:
        self.asked.append(asked)
        return [Heard(text, "" if asked.voice == "baritone" else text) for text in texts]

    def hear_teacher(self, texts: Sequence[str]) -> list[Heard]:
        return [Heard(text, text) for text in texts]

    def words_of(self, sound: np.ndarray, said: str) -> str:
        return said


class Client:
    """Answers orders with so many samples as it is given; the third fails."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.voices: list[str | None] = []
        self._lengths = iter(lengths)

    def turn(self, sound: np.ndarray, *, options: TurnOptions) -> Iterator[Any]:
        self.voices.append(options.voice)
        length = next(self._lengths)
        if length < 0:
            raise StageFailed("broken")
        text = f"A taco of {int(sound[0])}."
        speech = np.zeros(length, np.float32)
        yield SimpleNamespace(heard="a taco", text=text, speech=speech)


def orders(same: Sequence[bool]) -> list[NoisyOrder]:
    """One in each voice; the answer of `Client` is that without noise, or not."""
    return [
        NoisyOrder(
            "A taco",
            noisy_turns.KINDS[number % 2],
            5,
            np.full(9, number, np.float32),
            np.full(9, number if one else 99, np.float32),
            VOICES[number % 2],
        )
        for number, one in enumerate(same)
    ]


def test_an_answer_in_noise_is_there_is_the_same_and_is_heard_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = orders([True, False, True, True])
    monkeypatch.setattr(noisy_turns, "noisy_orders", lambda: given)
    client, report = Client([RATE_HZ, RATE_HZ] * 2 + [100, RATE_HZ, -1, RATE_HZ]), Report()
    with bars() as progress:
        deaf = Ears(client, progress)
        deaf.words_of = lambda sound, said: "A taco"  # type: ignore[method-assign]
        heard_in_noise(deaf, report)  # type: ignore[arg-type]
    assert client.voices == [voice for one in given for voice in (one.voice, one.voice)]
    assert report.figures["voice_noisy_turns"] == 4
    assert report.figures["voice_noisy_turns_heard"] == 3
    assert report.figures["voice_noisy_turns_answered"] == 2
    assert report.figures["voice_noisy_turns_same_answer"] == 1
    assert report.figures["voice_noisy_reply_wer"] == 0.5
    assert report.figures["voice_noisy_wer"] == 0.25
    told = report.detail["noisy_turns"]
    assert [one["same_answer"] for one in told] == [True, False, False, False]
    assert told[1]["answer_without_noise"] == "A taco of 99."
    assert "broken" in told[3]["error"]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[TurnOptions]]:
    """What `evaluate_voice` finds without a server, and how it has asked for speech."""
    made: list[Ears] = []

    def make(client: Any, progress: Any) -> Ears:
        made.append(Ears(client, progress))
        return made[-1]

    spread = {f"voice_{what}_spread_{t:g}": t for what in ("duration", "f0") for t in TEMPERATURES}
    server = nullcontext(SimpleNamespace(grpc_address=""))
    monkeypatch.setattr(evaluate, "Server", lambda settings: server)
    monkeypatch.setattr(evaluate, "TurnClient", lambda address: nullcontext(Client([9] * 99)))
    monkeypatch.setattr(evaluate, "Ears", make)
    monkeypatch.setattr(evaluate, "spreads", lambda *_: spread)
    monkeypatch.setattr(noisy_turns, "noisy_orders", lambda: orders([True] * 2))
    with bars() as progress:
        figures = evaluate_voice(progress)
    return figures, made[0].asked


Evaluated = tuple[dict[str, Any], list[TurnOptions]]


def test_every_target_is_a_figure_and_every_figure_a_number(found: Evaluated) -> None:
    figures, _ = found
    assert TARGETS.keys() <= figures.keys()
    assert all(isinstance(value, float) for name, value in figures.items() if name != "detail")
    assert figures["voice_wer_alto"] == 0
    assert figures["voice_wer_baritone_above_teacher"] == 1
    assert figures["voice_read_right_baritone"] == 0
    assert figures["voice_read_right_alto"] == len(CASES)
    assert figures["voice_f0_ratio"] == pytest.approx(0.6, rel=0.02)
    assert figures["voice_f0_spread_hottest_by_default"] == pytest.approx(1 / 0.3)
    counts = figures["detail"]["words"]
    assert counts["voice_wer_baritone"]["errors"] == 2 * counts["voice_wer_teacher"]["of"]


def test_what_ships_is_measured_by_asking_for_nothing_else(found: Evaluated) -> None:
    _, asked = found
    for voice in VOICES:
        assert asked.count(TurnOptions(voice=voice)) >= 3
    named = {(one.steps, one.solver) for one in asked if one.steps}
    assert named == {(steps, None) for steps in SOLVERS} | {(n, "euler") for n in (1, 2, 4)}


def test_the_curve_over_steps_has_what_was_measured_of_what_a_caller_gets() -> None:
    figures = {
        "voice_wer_alto_shortcut_2_steps": 0.02,
        "voice_wer_alto_euler_2_steps": 0.03,
        "voice_wer_alto_euler_16_steps": 0.01,
    }
    assert by_steps(figures, "voice_wer_alto_") == [(2, 0.02), (16, 0.01)]
    for some in (figures, {}, json.loads(QUALITY.read_text())):
        assert drawn_steps(some).startswith(b"\x89PNG")


def test_the_figures_beside_the_weights_are_figures_of_these_weights_and_texts() -> None:
    """Red after a training or a change of the texts, until `make eval` has recorded them anew."""
    report = json.loads(QUALITY.read_text())
    assert report["files"] == evaluate.hashes()
    assert TARGETS.keys() <= report.keys()
