"""The training corpus: readings of the teacher, compressed, cached outside the tree."""

import hashlib
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from build.fetch import cache_dir, replacing
from build.voice.teacher import Reading, Teacher, model_path
from build.voice.texts import training_texts
from python_backends.speech import FRAMES_PER_TICK, LATENT, PITCHES

HELD_OUT: Final = 60
"""Utterances at the end of the corpus that no trainer sees."""

_BASIS_TEXTS: Final = 300
_STATISTICS_UTTERANCES: Final = 800
_VOICED_HZ: Final = 60.0
_LEAST_VOICED_FRAMES: Final = 5
_PHONEMES: Final = range(4, 220)
_LAYOUT: Final = "4"
"""Changes when the cached file does."""


@dataclass(frozen=True)
class Basis:
    """Principal components of the teacher's hidden layer."""

    mean: NDArray[np.float32]
    """[HIDDEN]."""
    components: NDArray[np.float32]
    """[HIDDEN, LATENT], orthonormal columns."""
    scale: NDArray[np.float32]
    """[LATENT], standard deviation along each component: latents are divided by it."""
    explained: float
    """Share of the variance that the components keep."""

    @classmethod
    def fit(cls, hidden: NDArray[np.float32]) -> "Basis":
        """The LATENT largest principal components of [frames, HIDDEN]."""
        mean = hidden.mean(0)
        variance, vectors = np.linalg.eigh(np.cov((hidden - mean).T))
        kept = slice(None, -LATENT - 1, -1)
        return cls(
            mean.astype(np.float32),
            np.ascontiguousarray(vectors[:, kept], np.float32),
            np.sqrt(variance[kept]).astype(np.float32),
            float(variance[kept].sum() / variance.sum()),
        )

    def project(self, hidden: NDArray[np.float32]) -> NDArray[np.float16]:
        """Normalised latents [T, LATENT] of [T, HIDDEN]."""
        latent = (hidden - self.mean) @ self.components / self.scale
        return latent.astype(np.float16)


@dataclass(frozen=True)
class Statistics:
    """How F0 is normalised for the flow decoder and binned for the prosody LM; logs of Hz."""

    log_f0_mean: float
    log_f0_std: float
    pitch_low: float
    pitch_high: float

    @classmethod
    def of(cls, f0: NDArray[np.float32]) -> "Statistics":
        """Statistics of the voiced frames; pitch bins span their 1st to 99th percentile."""
        logs = np.log(f0[f0 > _VOICED_HZ])
        low, high = np.percentile(logs, [1, 99])
        return cls(float(logs.mean()), float(logs.std()), float(low), float(high))


@dataclass(frozen=True)
class Utterance:
    """One training example of P phonemes and T frames."""

    text: str
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
    """Everything the trainers need, and what describes the voice besides its weights."""

    utterances: list[Utterance]
    basis: Basis
    statistics: Statistics
    fingerprint: str

    @property
    def training(self) -> list[Utterance]:
        return self.utterances[:-HELD_OUT]

    @property
    def held_out(self) -> list[Utterance]:
        return self.utterances[-HELD_OUT:]


def cache_folder() -> Path:
    """Where training data and checkpoints live: `voice` in the project's cache."""
    folder = cache_dir() / "voice"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def load_corpus(workers: int = 2) -> Corpus:
    """The corpus of `training_texts()`, read by the teacher now or taken from the cache."""
    texts = training_texts()
    fingerprint = _fingerprint(texts)
    path = cache_folder() / f"corpus-{fingerprint}.npz"
    if not path.exists():
        _record(texts, path, workers)
    with np.load(path) as stored:
        return _assemble(dict(stored), fingerprint)


def _fingerprint(texts: Sequence[str]) -> str:
    digest = hashlib.sha256(_LAYOUT.encode())
    digest.update("\n".join(texts).encode())
    digest.update(model_path().read_bytes())
    return digest.hexdigest()[:16]


def _record(texts: Sequence[str], path: Path, workers: int) -> None:
    """Reads all texts and writes their flat arrays to `path`, atomically."""
    teacher = Teacher()
    first = [teacher.read(t).hidden for t in tqdm(texts[:_BASIS_TEXTS], "principal components")]
    basis = Basis.fit(np.concatenate(first))
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _open_teacher, (basis,)
    ) as pool:
        readings = list(
            tqdm(pool.map(_read, texts, chunksize=32), "teacher reads", len(texts), unit="text")
        )
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, **_flatten(_usable(readings)), **vars(basis))


_worker: tuple[Teacher, Basis]


def _open_teacher(basis: Basis) -> None:
    global _worker
    _worker = (Teacher(), basis)


@dataclass(frozen=True)
class _Projected:
    """A reading whose hidden layer is reduced to latents."""

    text: str
    phonemes: NDArray[np.int64]
    ticks: NDArray[np.int64]
    f0: NDArray[np.float32]
    latent: NDArray[np.float16]


def _read(text: str) -> _Projected:
    teacher, basis = _worker
    reading: Reading = teacher.read(text)
    latent = basis.project(reading.hidden)
    return _Projected(text, reading.phonemes, reading.ticks, reading.f0, latent)


def _usable(readings: Iterable[_Projected]) -> list[_Projected]:
    """Drops the few readings without voice, too short or too long."""
    return [
        r
        for r in readings
        if len(r.phonemes) in _PHONEMES and (r.f0 > _VOICED_HZ).sum() >= _LEAST_VOICED_FRAMES
    ]


def _flatten(readings: Sequence[_Projected]) -> dict[str, NDArray[np.generic]]:
    return {
        "text": np.array([r.text for r in readings]),
        "phoneme_count": np.array([len(r.phonemes) for r in readings]),
        "frame_count": np.array([len(r.f0) for r in readings]),
        "phonemes": np.concatenate([r.phonemes for r in readings]),
        "ticks": np.concatenate([r.ticks for r in readings]),
        "f0": np.concatenate([r.f0 for r in readings]),
        "latent": np.concatenate([r.latent for r in readings]),
    }


def _assemble(stored: dict[str, NDArray[Any]], fingerprint: str) -> Corpus:
    basis = Basis(stored["mean"], stored["components"], stored["scale"], float(stored["explained"]))
    phonemes = [slice(a, b) for a, b in pairwise(np.cumsum([0, *stored["phoneme_count"]]))]
    frames = [slice(a, b) for a, b in pairwise(np.cumsum([0, *stored["frame_count"]]))]
    f0: NDArray[np.float32] = stored["f0"]
    statistics = Statistics.of(f0[: frames[:_STATISTICS_UTTERANCES][-1].stop])
    utterances = [
        _utterance(
            str(text),
            stored["phonemes"][p],
            stored["ticks"][p],
            f0[t],
            stored["latent"][t],
            statistics,
        )
        for text, p, t in zip(stored["text"], phonemes, frames, strict=True)
    ]
    return Corpus(utterances, basis, statistics, fingerprint)


def _utterance(
    text: str,
    phonemes: NDArray[np.int64],
    ticks: NDArray[np.int64],
    f0: NDArray[np.float32],
    latent: NDArray[np.float16],
    statistics: Statistics,
) -> Utterance:
    assert FRAMES_PER_TICK * ticks.sum() == len(f0)
    voiced = f0 > _VOICED_HZ
    log_f0 = np.interp(np.arange(len(f0)), np.flatnonzero(voiced), np.log(f0[voiced]))
    melody = (log_f0 - statistics.log_f0_mean) / statistics.log_f0_std
    channels = [latent, melody[:, None], np.where(voiced, 1.0, -1.0)[:, None]]
    acoustic = np.concatenate(channels, 1).astype(np.float16)
    pitch = pitch_tokens(f0, voiced, FRAMES_PER_TICK * ticks, statistics)
    return Utterance(text, phonemes, ticks, pitch, acoustic)


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
