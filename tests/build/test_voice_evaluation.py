"""What `make eval` measures with: noise, spreads, manners, stretched spectra; what it writes."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from build import evaluate
from build.smollm import evaluate as judged
from build.smollm.evaluate import QUALITY, judge
from build.smollm.turns import Line
from build.spoken_orders import SpokenTurn, conversation_html
from build.voice.curves import by_steps, drawn_steps
from build.voice.evaluate import TARGETS
from build.voice.listening import spectrogram
from build.voice.makings import MAKINGS, stretched
from build.voice.manners import Manner, manners
from build.voice.noisy_turns import KINDS, LEVELS_DB, TURNS, mixed, orders
from build.voice.speaker import Speaker
from build.voice.spread import POINTS, duration_spread, f0_of, f0_spread
from build.voice.weights import FOLDER
from loadtest.load.runner import bars
from loadtest.seed.figures import at_least
from python_backends.speech import BINS, CHANNELS, LATENT, VOICES


@pytest.mark.parametrize("level_db", [20.0, 5.0])
def test_noise_is_mixed_at_the_level_that_is_asked_for(level_db: float) -> None:
    rng = np.random.default_rng(0)
    speech, noise = rng.standard_normal((2, 4000)).astype(np.float32) * [[0.1], [7]]
    both = mixed(speech, noise, level_db)
    left = both - speech
    assert 10 * np.log10(np.mean(speech**2) / np.mean(left**2)) == pytest.approx(level_db, abs=1e-3)
    assert np.abs(mixed(100 * speech, noise, level_db)).max() <= 1


def test_orders_in_noise_are_twenty_of_every_kind_and_level_and_always_the_same() -> None:
    first, again = list(orders()), list(orders())
    assert len({order.text for order in first}) == TURNS
    counts = Counter((order.kind, order.level_db) for order in first)
    assert counts == {(kind, level): 2 for kind in KINDS for level in LEVELS_DB}
    assert all(np.array_equal(a.sound, b.sound) for a, b in zip(first, again, strict=True))


def frames(count: int, melody: float) -> np.ndarray:
    """Voiced frames of one pitch, in standard deviations of log F0."""
    made = np.zeros((count, CHANNELS), np.float32)
    made[:, LATENT], made[:, LATENT + 1] = melody, 1
    return made


def test_spreads_are_of_durations_and_of_f0_in_semitones() -> None:
    speaker = Speaker.from_git()
    assert duration_spread([frames(90, 0), frames(110, 0)]) == pytest.approx(0.1)
    octave = np.log(2) / speaker.voice.log_f0_std
    apart = f0_spread([frames(POINTS, 0), frames(2 * POINTS, octave)], speaker)
    assert apart == pytest.approx(6, rel=1e-3)
    unvoiced = frames(5, 0)
    unvoiced[2:, LATENT + 1] = -1
    assert len(f0_of(unvoiced, speaker)) == 2


def test_every_text_is_read_once_by_each_voice_in_a_manner_of_its_own() -> None:
    drawn = manners(300, seed=1)
    assert drawn == manners(300, seed=1) != manners(300, seed=2)
    assert [one.voice for one in drawn] == list(range(len(VOICES))) * 300
    assert len({one.pace for one in drawn}) > 550
    for voice, making in enumerate(MAKINGS.values()):
        paces = [one.pace for one in drawn if one.voice == voice]
        assert np.median(paces) == pytest.approx(making.pace, rel=0.02)
        assert 0.8 * making.pace < min(paces) < max(paces) < 1.2 * making.pace


def test_a_manner_moves_the_melody_about_its_mean() -> None:
    melody, voiced = np.array([0.0, 1.0, 2.0, 9.0]), np.array([True, True, True, False])
    changed = Manner(0, 1.0, 0.5, 0.25).melody(melody, voiced)
    np.testing.assert_allclose(changed, [0.75, 1.25, 1.75, 5.25])


def test_a_longer_vocal_tract_moves_a_peak_down_in_every_part() -> None:
    spectra = np.zeros((2, 5 * BINS), np.float32)
    for part in range(5):
        spectra[:, part * BINS + 200] = part + 1
    moved = stretched(spectra, 0.8).reshape(2, 5, BINS)
    assert (moved.argmax(-1) == 160).all()
    np.testing.assert_allclose(moved.max(-1), [[1, 2, 3, 4, 5]] * 2)
    np.testing.assert_array_equal(stretched(spectra, 1.0), spectra)


def test_what_is_written_is_flat() -> None:
    written = evaluate.result({"voice": ({"a": 1.0, "detail": {"b": []}}, {"a": at_least(2)})})
    assert written == {
        "summary": {"a": 1.0},
        "targets": {"a": ">= 2"},
        "met": {"a": False},
        "detail": {"voice": {"b": []}},
    }


def test_orders_are_told_as_numbers_and_the_rest_as_detail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = json.loads(QUALITY.read_text())
    found = {key: value for key, value in report.items() if key not in ("model", "adapters_sha256")}

    def evaluate_orders(progress: Callable[[str], None]) -> dict[str, Any]:
        progress("an answer")
        return found

    monkeypatch.setattr(judged, "evaluate_orders", evaluate_orders)
    monkeypatch.setattr(evaluate, "OUT", tmp_path)
    figures, targets = evaluate.orders(bars())
    assert figures["orders_right"] == found["right"]
    assert figures["detail"]["held_out"] == found["held_out"]
    assert set(targets) <= figures.keys()
    assert found["held_out"][0][0]["answer"] in (tmp_path / "orders.html").read_text()

    monkeypatch.setattr(judged, "QUALITY", tmp_path / "quality.json")
    evaluate.record({"orders": (figures, targets)})
    assert json.loads((tmp_path / "quality.json").read_text()) == report


def test_every_voice_has_its_targets() -> None:
    assert {f"voice_wer_{voice}" for voice in VOICES} <= TARGETS.keys()


def test_the_curve_over_steps_has_what_was_measured_of_what_a_caller_gets() -> None:
    figures = {
        "voice_wer_alto_shortcut_2_steps": 0.02,
        "voice_wer_alto_euler_2_steps": 0.03,
        "voice_wer_alto_euler_16_steps": 0.01,
    }
    assert by_steps(figures, "voice_wer_alto_") == [(2, 0.02), (16, 0.01)]
    report = json.loads((FOLDER / "quality.json").read_text())
    assert drawn_steps(report).startswith(b"\x89PNG")


def test_a_spoken_conversation_has_both_sounds_and_marks_what_is_wrong() -> None:
    line = Line("A taco & a Coke", "Got it, a taco. What size Coke would you like?")
    sound = np.zeros(2400, np.float32)
    turns = [
        SpokenTurn(line, sound, heard, answer, sound, "[Order: a taco. Total: $2.50]")
        for heard, answer in ((line.heard, line.good), ("A tack oh", "Sorry?"))
    ]
    found = conversation_html("One", turns, judge((line, line), [turn.answer for turn in turns]))
    assert found.count("<audio") == 4
    assert found.count("reply wrong") == 1
    assert "A taco &amp; a Coke" in found
    assert found.count("understood: A tack oh") == 1


def test_a_spectrogram_is_a_picture() -> None:
    tone = np.sin(2 * np.pi * 3_000 * np.arange(24_000) / 24_000).astype(np.float32)
    assert spectrogram(tone).startswith(b"\x89PNG")
