"""The training corpus: readings of the teacher, compressed, cached outside the tree."""

import hashlib
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from build.fetch import cache_dir, replacing
from build.voice.latents import LATENTS, VOICED_HZ, Basis, Statistics, load_latents, save_latents
from build.voice.manners import Manner, manners
from build.voice.teacher import Phonemizer, Reading, Teacher, model_path
from build.voice.texts import training_texts
from python_backends.speech import FRAMES_PER_TICK, PITCHES, VOICES

HELD_OUT: Final = 120
"""Readings at the end of the corpus, of the last 60 texts, that no trainer sees."""

_MANNERS_SEED: Final = 7
_BASIS_TEXTS: Final = 300
_LEAST_VOICED_FRAMES: Final = 5
_PHONEMES: Final = range(4, 220)
_LAYOUT: Final = "5"
"""Changes when the cached file does."""


@dataclass(frozen=True)
class Utterance:
    """One training example of P phonemes and T frames."""

    text: str
    voice: int
    """Place in VOICES."""
    phonemes: NDArray[np.int64]
    """[P]."""
    ticks: NDArray[np.int64]
    """[P], duration in ticks of FRAMES_PER_TICK frames."""
    pitch: NDArray[np.int64]
    """[P], pitch token: 0 unvoiced, else 1 + bin of the mean voiced F0."""
    acoustic: NDArray[np.float16]
    """[T, CHANNELS]: latents, normalised log F0 interpolated through unvoiced frames, voicing."""


@dataclass(frozen=True)
class Corpus:
    """Everything the trainers need."""

    utterances: list[Utterance]
    basis: Basis
    fingerprint: str

    @property
    def training(self) -> list[Utterance]:
        held = {utterance.text for utterance in self.held_out}
        return [utterance for utterance in self.utterances if utterance.text not in held]

    @property
    def held_out(self) -> list[Utterance]:
        return self.utterances[-HELD_OUT:]


def cache_folder() -> Path:
    """Where training data and checkpoints live: `voice` in the project's cache."""
    folder = cache_dir() / "voice"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def load_corpus(workers: int = 2) -> Corpus:
    """The corpus of `training_texts()`, each read once for each voice in a manner of its own; read
    by the teacher now or taken from the cache."""
    texts = training_texts()
    if not LATENTS.exists():
        _fit_latents(texts)
    fingerprint = _fingerprint(texts)
    path = cache_folder() / f"corpus-{fingerprint}.npz"
    if not path.exists():
        _record(texts, path, workers)
    with np.load(path) as stored:
        return _assemble(dict(stored), fingerprint)


def _fit_latents(texts: Sequence[str]) -> None:
    teacher = Teacher()
    plain = [teacher.read(text) for text in tqdm(texts[:_BASIS_TEXTS], "principal components")]
    basis = Basis.fit(np.concatenate([reading.hidden for reading in plain]))
    save_latents(basis, Statistics.of(np.concatenate([reading.f0 for reading in plain])))


def _fingerprint(texts: Sequence[str]) -> str:
    """Of all that the corpus is made of: texts and what the front end makes of them, manners, the
    teacher, the space of the latents."""
    digest = hashlib.sha256(_LAYOUT.encode())
    phonemes = Phonemizer()
    for text in texts:
        digest.update(f"{text}\n{phonemes(text).tolist()}\n".encode())
    digest.update(repr(manners(len(texts), _MANNERS_SEED)).encode())
    for path in (model_path(), LATENTS):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _record(texts: Sequence[str], path: Path, workers: int) -> None:
    """Reads all texts and writes their flat arrays to `path`, atomically."""
    each = [text for text in texts for _ in VOICES]
    drawn = manners(len(texts), _MANNERS_SEED)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _open_teacher) as pool:
        reading = pool.map(_read, each, drawn, chunksize=32)
        readings = list(tqdm(reading, "teacher reads", len(each), unit="text"))
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, **_flatten(_usable(readings)))


_worker: tuple[Teacher, Basis]


def _open_teacher() -> None:
    global _worker
    _worker = (Teacher(), load_latents()[0])


@dataclass(frozen=True)
class _Projected:
    """A reading whose hidden layer is reduced to latents."""

    text: str
    manner: Manner
    phonemes: NDArray[np.int64]
    ticks: NDArray[np.int64]
    f0: NDArray[np.float32]
    latent: NDArray[np.float16]


def _read(text: str, manner: Manner) -> _Projected:
    teacher, basis = _worker
    reading: Reading = teacher.read(text, manner.pace)
    latent = basis.project(reading.hidden)
    return _Projected(text, manner, reading.phonemes, reading.ticks, reading.f0, latent)


def _usable(readings: Iterable[_Projected]) -> list[_Projected]:
    """Drops the few readings without voice, too short or too long."""
    return [
        r
        for r in readings
        if len(r.phonemes) in _PHONEMES and (r.f0 > VOICED_HZ).sum() >= _LEAST_VOICED_FRAMES
    ]


def _flatten(readings: Sequence[_Projected]) -> dict[str, NDArray[np.generic]]:
    return {
        "text": np.array([r.text for r in readings]),
        "manner": np.array([astuple(r.manner) for r in readings]),
        "phoneme_count": np.array([len(r.phonemes) for r in readings]),
        "frame_count": np.array([len(r.f0) for r in readings]),
        "phonemes": np.concatenate([r.phonemes for r in readings]),
        "ticks": np.concatenate([r.ticks for r in readings]),
        "f0": np.concatenate([r.f0 for r in readings]),
        "latent": np.concatenate([r.latent for r in readings]),
    }


def _assemble(stored: dict[str, NDArray[Any]], fingerprint: str) -> Corpus:
    basis, statistics = load_latents()
    phonemes = [slice(a, b) for a, b in pairwise(np.cumsum([0, *stored["phoneme_count"]]))]
    frames = [slice(a, b) for a, b in pairwise(np.cumsum([0, *stored["frame_count"]]))]
    f0: NDArray[np.float32] = stored["f0"]
    utterances = [
        _utterance(
            _Projected(
                str(text),
                Manner(int(voice), *manner),
                stored["phonemes"][p],
                stored["ticks"][p],
                f0[t],
                stored["latent"][t],
            ),
            statistics,
        )
        for text, (voice, *manner), p, t in zip(
            stored["text"], stored["manner"], phonemes, frames, strict=True
        )
    ]
    return Corpus(utterances, basis, fingerprint)


def _utterance(read: _Projected, statistics: Statistics) -> Utterance:
    assert FRAMES_PER_TICK * read.ticks.sum() == len(read.f0)
    voiced = read.f0 > VOICED_HZ
    log_f0 = np.interp(np.arange(len(voiced)), np.flatnonzero(voiced), np.log(read.f0[voiced]))
    plain = (log_f0 - statistics.log_f0_mean) / statistics.log_f0_std
    melody = read.manner.melody(plain, voiced)
    voicing = np.where(voiced, 1.0, -1.0)
    acoustic = np.column_stack([read.latent, melody, voicing]).astype(np.float16)
    f0 = np.exp(melody * statistics.log_f0_std + statistics.log_f0_mean).astype(np.float32)
    pitch = pitch_tokens(f0, voiced, FRAMES_PER_TICK * read.ticks, statistics)
    return Utterance(read.text, read.manner.voice, read.phonemes, read.ticks, pitch, acoustic)


def pitch_tokens(
    f0: NDArray[np.float32],
    voiced: NDArray[np.bool_],
    duration_frames: NDArray[np.int64],
    statistics: Statistics,
) -> NDArray[np.int64]:
    """Per phoneme: 0 if less than half of it is voiced, else the bin of its mean voiced F0."""
    bins, span = PITCHES - 1, statistics.pitch_high - statistics.pitch_low
    tokens = np.zeros(len(duration_frames), np.int64)
    for i, (start, end) in enumerate(pairwise(np.cumsum([0, *duration_frames]))):
        mask = voiced[start:end]
        if end > start and mask.mean() >= 0.5:
            place = (np.log(f0[start:end][mask].mean()) - statistics.pitch_low) / span
            tokens[i] = 1 + int(np.clip(place * bins, 0, bins - 1))
    return tokens
