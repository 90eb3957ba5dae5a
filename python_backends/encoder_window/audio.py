"""What callers send as AUDIO, checked and brought to full scale 1."""

import numpy as np
from numpy.typing import NDArray

from python_backends.errors import InvalidInput

SAMPLE_RATE_HZ = 16_000
TOLERATED_PEAK = 2.0
"""Sound that overshoots full scale a little stays as it is; above this it is an integer format."""

INTEGER_FULL_SCALES = (2**15, 2**23, 2**31)
QUIETEST_INTEGERS = 256.0
"""Peak that even whispered 16 bit speech passes. Below it, samples that are not whole numbers are a
mix far too loud; as integers they would be silence, and a caller would be heard as nobody."""

BYTE_CENTRE, BYTE_OFFSET = 128, 64
"""Where unsigned bytes are centred, and how far off their mean may be."""

SILENCE_DBFS = -60.0
LEVEL_FRAME = 480
"""Samples of the 30 ms frames in which loudness is looked for."""

TONE_BLOCK = SAMPLE_RATE_HZ // 2
"""Samples in which a tone must hold still: half a second tells lines 2 Hz apart, and no voice keeps
its pitch that well."""

TONES = 4
"""Lines that steady tones may have: two of a telephone's, and their strongest overtones."""

LINE_BINS = 4
"""On either side of a line: what the Hann window spreads it over."""

TONE_REST = 1e-4
"""Of the power of a block that its lines may leave: words up to 40 dB below a tone are encoded."""


def checked(values: NDArray[np.float32], max_audio_s: float) -> NDArray[np.float32]:
    """AUDIO [1, N] as sound [N] of full scale 1. InvalidInput says what is accepted."""
    accepted = f"0.01 to {max_audio_s:g} s of 16 kHz mono float32, shape [1, N], are accepted"
    if values.ndim != 2 or values.shape[0] != 1:
        raise InvalidInput(f"AUDIO has shape {list(values.shape)}; {accepted}")
    sound = values[0].astype(np.float32, copy=False)
    if not sound.size:
        raise InvalidInput(f"AUDIO has no samples; {accepted}")
    seconds = len(sound) / SAMPLE_RATE_HZ
    if seconds > max_audio_s:
        raise InvalidInput(f"AUDIO lasts {seconds:.2f} s; {accepted}")
    if not np.isfinite(sound).all():
        raise InvalidInput(f"AUDIO has samples that are NaN or infinite; {accepted}")
    return _to_full_scale(sound)


def is_silent(sound: NDArray[np.float32]) -> bool:
    """True when even the loudest 30 ms of `sound` [n] lie below SILENCE_DBFS, any offset aside."""
    centred = sound.astype(np.float64) - sound.mean(dtype=np.float64)
    starts = np.arange(0, len(centred), LEVEL_FRAME)
    powers = np.add.reduceat(centred**2, starts) / np.minimum(LEVEL_FRAME, len(centred) - starts)
    return bool(powers.max() < 10 ** (SILENCE_DBFS / 10))


def is_tone(sound: NDArray[np.float32]) -> bool:
    """True when every half second of `sound` [n] is silent or a few lines and nothing else, as dial
    tones, test tones and whistling loudspeakers are; Whisper hears a "You" or a sentence in them.
    Never of less than half a second. Speech is told from a tone by its first block."""
    starts = range(0, len(sound) - TONE_BLOCK + 1, TONE_BLOCK)
    blocks = (sound[start : start + TONE_BLOCK] for start in (*starts, len(sound) - TONE_BLOCK))
    return len(starts) > 0 and all(is_silent(block) or _is_lines(block) for block in blocks)


def _is_lines(block: NDArray[np.float32]) -> bool:
    """The strongest lines of `block` [TONE_BLOCK] hold all but TONE_REST of its power."""
    centred = block - block.mean(dtype=np.float64)
    power = np.abs(np.fft.rfft(centred * np.hanning(TONE_BLOCK))) ** 2
    total = power.sum()
    for _ in range(TONES):
        peak = int(power.argmax())
        power[max(0, peak - LINE_BINS) : peak + LINE_BINS + 1] = 0
    return bool(power.sum() < TONE_REST * total)


def _to_full_scale(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Integer samples that came as floats, divided by the full scale of their format.

    Unsigned 8 bit is the only format without negative values; it is centred at 128.
    """
    low, high = float(sound.min()), float(sound.max())
    peak = max(-low, high)
    if peak <= TOLERATED_PEAK:
        return sound
    if low >= 0 and high <= 255 and abs(float(sound.mean()) - BYTE_CENTRE) < BYTE_OFFSET:
        return (sound - np.float32(BYTE_CENTRE)) / np.float32(BYTE_CENTRE)
    is_integer = peak >= QUIETEST_INTEGERS or np.array_equal(sound, np.rint(sound))
    for scale in INTEGER_FULL_SCALES:
        if is_integer and peak <= scale:
            return sound / np.float32(scale)
    raise InvalidInput(
        f"AUDIO peaks at {peak:.3g}; full scale is 1, or that of 8, 16, 24 or 32 bit integers"
    )
