"""The voice's training data: text, frames, corpus; and how its quality is counted."""

import random
import re

import numpy as np
import pytest

from build.voice import corpus
from build.voice.corpus import pitch_tokens
from build.voice.grammar import GRAMMAR, SHARES
from build.voice.hearing import number_words, respelt, spoken
from build.voice.latents import Basis, Statistics
from build.voice.texts import MADE, MAX_CHARACTERS, expand, training_texts
from build.voice.unseen import CASES, SENTENCES
from python_backends.diffusion_lock.frames import frame_positions
from python_backends.speech import LATENT
from python_backends.spoken import Phonemizer


def test_training_text_depends_only_on_its_seed() -> None:
    first, again, other = (training_texts(200, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) == 200
    assert max(map(len, first)) <= MAX_CHARACTERS


def test_every_symbol_of_the_grammar_can_be_expanded() -> None:
    used = set(re.findall(r"{(\w+)}", "|".join(GRAMMAR.values())))
    assert used <= GRAMMAR.keys() | MADE.keys()
    assert GRAMMAR.keys() | MADE.keys() == used | SHARES.keys()
    rng = random.Random(0)
    assert all("{" not in expand(symbol, rng) for symbol in GRAMMAR for _ in range(20))


def test_the_sentences_that_measure_the_voice_are_not_in_its_training_text() -> None:
    seen = {spoken(text) for text in training_texts()}
    texts = [*SENTENCES, *(case.text for case in CASES), *(case.words for case in CASES)]
    assert len(set(SENTENCES)) == 100
    assert len({case.text for case in CASES}) == 50
    assert not [text for text in texts if spoken(text) in seen]


def test_the_front_end_reads_prices_times_and_numbers_as_they_are_spelt_out() -> None:
    """By sound: stress apart, for "forty-seven" in one word is stressed as one."""
    read = Phonemizer()
    symbols = {number: symbol for symbol, number in read._ids.items()}

    def sounds(text: str) -> str:
        return "".join(one for one in map(symbols.__getitem__, read(text)) if one not in "ˈˌ,. ")

    for case in CASES:
        assert sounds(case.text) == sounds(case.words), case.text


@pytest.mark.parametrize(
    ("number", "heard", "right"),
    [
        (0, "Your total is 14 dollars and 50 cents", True),
        (0, "Your total is $14.15.", False),
        (16, "We close at 11 p.m.", True),
        (16, "We close at 11 a.m.", False),
        (17, "Your table is ready at 745.", True),
        (27, "You are number one hundred three in line.", True),
        (27, "You are number 130 in line.", False),
        (45, "Table ate wants for waters.", False),
        (45, "table 8 once for waters", True),
    ],
)
def test_a_number_is_heard_right_however_it_is_spelt(number: int, heard: str, right: bool) -> None:
    assert CASES[number].is_heard_right(heard) == right


def test_frames_know_their_phoneme_and_their_place_in_it() -> None:
    frame_phoneme, position = frame_positions(np.array([2, 0, 3]))
    assert frame_phoneme.tolist() == [0, 0, 2, 2, 2]
    np.testing.assert_allclose(position[:, 0], [-0.25, 0.25, -1 / 3, 0, 1 / 3], atol=1e-6)
    np.testing.assert_allclose(position[:, 1], np.log([1, 2, 1, 2, 3]) / 3 - 0.5, atol=1e-6)
    np.testing.assert_allclose(position[:, 2], np.log([2, 2, 3, 3, 3]) / 3 - 0.8, atol=1e-6)
    assert position.dtype == np.float32


def test_no_phonemes_have_no_frames() -> None:
    frame_phoneme, position = frame_positions(np.zeros(0, np.int64))
    assert frame_phoneme.shape == (0,)
    assert position.shape == (0, 3)


@pytest.mark.parametrize("durations", [np.array([[1]]), np.array([2, -1])])
def test_durations_that_cannot_be_are_refused(durations: np.ndarray) -> None:
    with pytest.raises(ValueError, match="duration_frames"):
        frame_positions(durations)


def test_the_basis_keeps_what_lies_in_its_components() -> None:
    rng = np.random.default_rng(0)
    spread = rng.standard_normal((LATENT, 256)).astype(np.float32)
    hidden = rng.standard_normal((500, LATENT)).astype(np.float32) @ spread + 3
    basis = Basis.fit(hidden)
    latent = basis.project(hidden).astype(np.float32)
    np.testing.assert_allclose(latent.std(0), 1, atol=0.01)
    restored = latent * basis.scale @ basis.components.T + basis.mean
    np.testing.assert_allclose(restored, hidden, atol=0.1)
    assert basis.explained == pytest.approx(1, abs=1e-4)


def test_a_corpus_is_known_by_its_texts_and_by_how_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["We close at 11 pm.", "Hello."]
    known = corpus._fingerprint(texts)
    assert known == corpus._fingerprint(texts) != corpus._fingerprint(texts[::-1])

    class OtherFrontEnd:
        def __call__(self, text: str) -> np.ndarray:
            return np.array([0, len(text), 0])

    monkeypatch.setattr(corpus, "Phonemizer", OtherFrontEnd)
    assert corpus._fingerprint(texts) != known


def test_pitch_tokens_are_zero_where_most_of_a_phoneme_is_unvoiced() -> None:
    statistics = Statistics(5.0, 0.2, float(np.log(100)), float(np.log(400)))
    f0 = np.array([100, 100, 0, 0, 0, 300, 500, 500], np.float32)
    tokens = pitch_tokens(f0, f0 > 60, np.array([2, 4, 2, 0]), statistics)
    assert tokens.tolist() == [1, 0, 32, 0]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (14, "fourteen"),
        (40, "forty"),
        (99, "ninety nine"),
        (305, "three hundred five"),
    ],
)
def test_numbers_are_compared_as_words(number: int, words: str) -> None:
    assert number_words(number) == words
    assert spoken(f"It\u2019s ${number}.50, OK?") == f"it's {words} dollars and fifty cents okay"


def test_other_spellings_of_the_same_sounds_are_no_errors() -> None:
    heard = "Dr. Chen had an omelet at 945, from 630 until 11, for 250 people."
    said = "Doctor Chen had an omelette at 9 45, from 6 30 until 11, for 250 people."
    assert respelt(heard, said) == said
    assert respelt("Sorry about the weight, two.", "Sorry about the wait, too.") == (
        "Sorry about the wait, too."
    )
    assert respelt("It doesn't matter.", "A dozen kinds.") == "It doesn't matter."
