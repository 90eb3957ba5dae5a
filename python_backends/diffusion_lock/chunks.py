"""A piece cut into chunks for the vocoder, with context on either side so that no seam is heard."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.diffusion_lock.noise import Stream, normal
from python_backends.diffusion_lock.source import Voice, voiced
from python_backends.speech import CONTEXT_FRAMES, LATENT, MIN_F0_HZ, NOISE

FIRST_CHUNK = 24
"""Frames of the first chunk, 0.3 s: what the listener waits for."""

CHUNK = 80
SHORTEST_CHUNK = 10


def plan(frames: int, *, stream: bool) -> list[tuple[int, int]]:
    """Chunks [start, stop) of a piece; a rest shorter than SHORTEST_CHUNK joins the one before."""
    if not stream:
        return [(0, frames)]
    starts = [0, *range(FIRST_CHUNK, frames, CHUNK)]
    if len(starts) > 1 and frames - starts[-1] < SHORTEST_CHUNK:
        starts.pop()
    return list(zip(starts, [*starts[1:], frames], strict=True))


@dataclass(frozen=True)
class VocoderInput:
    """A whole piece of T frames with context: arrays have T + 2 * CONTEXT_FRAMES rows.

    At the edges of the piece the context repeats the outermost frame, unvoiced.
    """

    latent: NDArray[np.float32]
    f0: NDArray[np.float32]
    voiced: NDArray[np.float32]
    phase: NDArray[np.float32]
    noise: NDArray[np.float32]
    voice: int
    """Place of who speaks in VOICES."""

    @classmethod
    def of(
        cls, frames: NDArray[np.float32], voice: Voice, *, seed: int, piece: int
    ) -> "VocoderInput":
        """From the decoder's frames [T, 66]."""
        edges = (CONTEXT_FRAMES, CONTEXT_FRAMES)
        edged = np.pad(frames, (edges, (0, 0)), mode="edge")
        f0 = voice.f0_hz(edged)
        return cls(
            latent=edged[:, :LATENT],
            f0=f0,
            voiced=np.pad(voiced(frames), edges),
            phase=voice.phase(f0),
            noise=normal(seed, piece, Stream.VOCODER, (len(edged), NOISE)),
            voice=voice.number,
        )

    @classmethod
    def silence(cls, voice: Voice) -> "VocoderInput":
        """One frame without sound."""
        rows = 1 + 2 * CONTEXT_FRAMES
        nothing = np.zeros(rows, np.float32)
        return cls(
            latent=np.zeros((rows, LATENT), np.float32),
            f0=np.full(rows, MIN_F0_HZ, np.float32),
            voiced=nothing,
            phase=nothing,
            noise=np.zeros((rows, NOISE), np.float32),
            voice=voice.number,
        )

    @property
    def frames(self) -> int:
        """Frames that will be heard."""
        return len(self.f0) - 2 * CONTEXT_FRAMES

    def chunk(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        """The vocoder's inputs for frames [start, stop), context included, batch-leading."""
        rows = slice(start, stop + 2 * CONTEXT_FRAMES)
        return {
            "LATENT": self.latent[None, rows],
            "F0": self.f0[None, rows],
            "VOICED": self.voiced[None, rows],
            "PHASE": self.phase[None, rows],
            "NOISE": self.noise[None, rows],
            "VOICE": np.array([[self.voice]], np.int64),
        }
