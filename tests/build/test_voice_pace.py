"""Nothing that is spoken is squeezed: seconds a character, by the voice's own durations."""

from functools import cache

import numpy as np
import pytest
import torch

from build.voice import weights
from build.voice.prosody_lm import ProsodyLM
from build.voice.teacher import Phonemizer
from python_backends.speech import DURATIONS, FRAME_HZ, FRAMES_PER_TICK, PITCHES

STORY = (
    "We open at nine in the morning and close at five in the evening, but on Sundays the shop "
    "stays closed. The large burger comes with fries and a drink, and you may ask for extra sauce."
)
MS_A_CHARACTER = 57.0
"""Of the story, without the silence at both ends."""


@cache
def voice() -> tuple[Phonemizer, ProsodyLM]:
    return Phonemizer(), weights.load_prosody()


def spoken_ms(text: str) -> float:
    """Greedy, between the silences."""
    phonemize, lm = voice()
    phonemes = torch.from_numpy(phonemize(text))
    greedy = torch.zeros(len(phonemes), DURATIONS + PITCHES)
    with torch.inference_mode():
        ticks = np.maximum(lm.generate(phonemes, greedy)[1:-1, 0].numpy(), 1)
    return 1000 * float(ticks.sum()) * FRAMES_PER_TICK / FRAME_HZ


@pytest.mark.parametrize("characters", [42, 146])
def test_a_long_text_is_spoken_as_fast_as_a_short_one(characters: int) -> None:
    """Public case H5."""
    text = STORY[:characters].rpartition(" ")[0]
    assert spoken_ms(text) / len(text) == pytest.approx(MS_A_CHARACTER, rel=0.2)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "**Total:** $1,234.56 😀",
            "Total: one thousand two hundred thirty four dollars and fifty six cents",
        ),
        ("(555) 123-4567", "five five five, one two three, four five six seven"),
        (
            "5-10% at https://www.example.com/docs",
            "five to ten percent at example dot com slash docs",
        ),
        ("Hello 你好 (friend)…", "Hello, friend."),
    ],
)
def test_what_is_written_lasts_as_long_as_what_one_says(written: str, said: str) -> None:
    assert spoken_ms(written) == pytest.approx(spoken_ms(said), rel=0.2)
