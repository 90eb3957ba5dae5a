"""The voice's training data: text, frames, corpus."""

import random
import re

import numpy as np
import pytest

from build.voice import corpus
from build.voice.corpus import pitch_tokens
from build.voice.grammar import GRAMMAR, SHARES
from build.voice.latents import Basis, Statistics
from build.voice.texts import MADE, MAX_CHARACTERS, expand, training_texts
from build.voice.unseen import CASES, SENTENCES
from client.wer import words
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
    seen = {tuple(words(text)) for text in training_texts()}
    texts = [*SENTENCES, *(case.text for case in CASES), *(case.words for case in CASES)]
    assert len(set(SENTENCES)) == 100
    assert len({case.text for case in CASES}) == 50
    assert not [text for text in texts if tuple(words(text)) in seen]


def test_the_front_end_reads_prices_times_and_numbers_as_they_are_spelt_out() -> None:
    """By sound: stress apart, for "forty-seven" in one word is stressed as one."""
    read = Phonemizer()
    symbols = {number: symbol for symbol, number in read._ids.items()}

    def sounds(text: str) -> str:
        return "".join(one for one in map(symbols.__getitem__, read(text)) if one not in "ˈˌ,. ")

    for case in CASES:
        assert sounds(case.text) == sounds(case.words), case.text


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
