"""Text to sound with the torch modules: what the servers' stages do together, for measurement."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from build.voice import weights
from build.voice.flow_decoder import FlowDecoder
from build.voice.prosody_lm import ProsodyLM
from build.voice.teacher import Phonemizer
from build.voice.vocoder import Vocoder, frame_advance
from python_backends.diffusion_lock.frames import frame_positions
from python_backends.diffusion_lock.solver import SHORTCUT, chosen, stride
from python_backends.diffusion_lock.source import Voice, load_voices
from python_backends.speech import (
    CHANNELS,
    CONTEXT_FRAMES,
    DURATIONS,
    FRAMES_PER_TICK,
    LATENT,
    NOISE,
    PITCHES,
    SAMPLE_RATE_HZ,
    VOICES,
)

EULER: Final = "euler"

_TINY: Final = 1e-9


@dataclass(frozen=True, eq=False)
class Models:
    """What speakers share."""

    phonemize: Phonemizer
    prosody: ProsodyLM
    flow: FlowDecoder
    vocoder: Vocoder
    voices: Mapping[str, Voice]
    """How each voice scales F0, as the server reads it."""

    @classmethod
    def from_git(cls) -> "Models":
        """Those of `weights/voice`."""
        return cls(
            Phonemizer(),
            weights.load_prosody(),
            weights.load_flow(),
            weights.load_vocoder(),
            load_voices(weights.SPEECH),
        )


@dataclass(frozen=True, eq=False)
class Said:
    """One reading of P phonemes in T frames."""

    durations: NDArray[np.int64]
    """[P], frames of each phoneme; their sum is T."""

    frames: NDArray[np.float32]
    """[T, CHANNELS], what sound is made of."""


class Speaker:
    """Speaks a text.

    Args:
        voice: its name.
        temperature: of the prosody LM; 0 is greedy.
        steps: of the flow decoder.
        solver: "euler" or "shortcut"; empty for what the server takes for so many steps.

    InvalidInput for a shortcut of steps that was not learnt, ValueError for other solvers.
    """

    def __init__(
        self,
        models: Models,
        *,
        voice: str = VOICES[0],
        temperature: float = 0.0,
        steps: int = 4,
        solver: str = "",
    ) -> None:
        solver = chosen(solver, SHORTCUT, steps)
        if solver not in (EULER, SHORTCUT):
            raise ValueError(f"solver {solver!r}; {EULER!r} and {SHORTCUT!r} are known here")
        self.voice = models.voices[voice]
        self._models = models
        self._temperature = temperature
        self._steps = steps
        self._stride = stride(solver, steps)

    @torch.inference_mode()
    def __call__(self, text: str, seed: int = 0) -> NDArray[np.float32]:
        """Float32 sound at 24 kHz; the seed fixes prosody, decoding and noise."""
        rng = np.random.default_rng(seed)
        return self._vocode(self._said(text, rng).frames, rng)

    @torch.inference_mode()
    def said(self, text: str, seed: int = 0) -> Said:
        """The same before it is made sound."""
        return self._said(text, np.random.default_rng(seed))

    def _said(self, text: str, rng: np.random.Generator) -> Said:
        phonemes = torch.from_numpy(self._models.phonemize(text))
        gumbel = self._gumbel(len(phonemes), rng)
        prosody = self._models.prosody.generate(phonemes, gumbel, self.voice.number)
        durations = FRAMES_PER_TICK * np.maximum(prosody[:, 0].numpy(), 1)
        return Said(durations, self._decode(phonemes, prosody[:, 1], durations, rng))

    def _gumbel(self, steps: int, rng: np.random.Generator) -> torch.Tensor:
        uniform = rng.random((steps, DURATIONS + PITCHES))
        gumbel = -np.log(-np.log(uniform + _TINY) + _TINY)
        return torch.from_numpy((self._temperature * gumbel).astype(np.float32))

    def _decode(
        self,
        phonemes: torch.Tensor,
        pitch: torch.Tensor,
        durations: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> NDArray[np.float32]:
        """Acoustic frames [T, CHANNELS]."""
        frame_phoneme, position = frame_positions(durations)
        flow, frames = self._models.flow, len(frame_phoneme)
        condition = flow.condition(
            phonemes[None],
            pitch[None],
            torch.from_numpy(frame_phoneme)[None],
            torch.from_numpy(position)[None],
            torch.tensor([[self.voice.number]]),
            torch.tensor([[self._stride]]),
        )
        noise = torch.from_numpy(rng.standard_normal((1, frames, CHANNELS), np.float32))
        length = torch.tensor([[frames]])
        return np.asarray(flow.sample(noise, condition, length, self._steps)[0].numpy())

    def _vocode(
        self, acoustic: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """The whole utterance in one chunk, its ends repeated as context."""
        padded = np.pad(acoustic, ((CONTEXT_FRAMES, CONTEXT_FRAMES), (0, 0)), mode="edge")
        f0 = self.voice.f0_hz(padded)
        inputs = (
            padded[:, :LATENT],
            f0,
            padded[:, LATENT + 1] > 0,
            pulse_phase(f0),
            rng.standard_normal((len(padded), NOISE)),
        )
        rows = [torch.from_numpy(np.asarray(array, np.float32))[None] for array in inputs]
        speech, _ = self._models.vocoder(*rows, torch.tensor([[self.voice.number]]))
        return np.asarray(speech[0].numpy())


def pulse_phase(f0: NDArray[np.float32]) -> NDArray[np.float64]:
    """Phase [F], radians in [0, 2 pi), where each frame begins; 0 at the first."""
    neighbours = np.lib.stride_tricks.sliding_window_view(np.pad(f0, 1, mode="edge"), 3)
    advance = neighbours.astype(np.float64) @ frame_advance() / SAMPLE_RATE_HZ
    return np.asarray(2 * np.pi * ((np.cumsum(advance) - advance) % 1))
