"""A caller's bytes as sound: 16 bit PCM of any rate, in chunks of any length."""

import numpy as np
import soxr
from numpy.typing import NDArray

from python_backends.encoder_window.audio import SAMPLE_RATE_HZ

Floats = NDArray[np.float32]

FULL_SCALE = np.float32(2**15)
NOTHING = np.zeros(0, np.float32)


class PcmReader:
    """Little-endian mono samples, `rate_hz` a second, to float32 at 16 kHz.

    Cut differently, the same bytes give the same samples, bit for bit. Sound of another rate comes
    out some 40 ms late, of 8 kHz 60 ms: so much the filter has to know of what follows.
    """

    def __init__(self, rate_hz: int) -> None:
        self._rest = b""
        self._resampler = None
        if rate_hz != SAMPLE_RATE_HZ:
            # Below 16 kHz the gentler filter loses nothing that a telephone carries.
            quality = "LQ" if rate_hz < SAMPLE_RATE_HZ else "HQ"
            self._resampler = soxr.ResampleStream(
                rate_hz, SAMPLE_RATE_HZ, 1, dtype="float32", quality=quality
            )

    def read(self, chunk: NDArray[np.uint8]) -> Floats:
        """The next samples [n] of `chunk` [bytes]; half a sample waits for its other half."""
        given = self._rest + chunk.tobytes()
        whole = len(given) // 2 * 2
        self._rest = given[whole:]
        return self._resampled(np.frombuffer(given[:whole], "<i2") / FULL_SCALE, last=False)

    def end(self) -> Floats:
        """What was still held back."""
        return self._resampled(NOTHING, last=True)

    def _resampled(self, sound: Floats, *, last: bool) -> Floats:
        if self._resampler is None or not (sound.size or last):
            return sound
        return np.asarray(self._resampler.resample_chunk(sound, last=last), np.float32)
