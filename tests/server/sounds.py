"""Sound in which nobody speaks, float32 at 16 kHz: noise, music, tones."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def noise(seconds: int) -> Floats:
    """White noise at -60 dBFS."""
    draw = np.random.default_rng(seconds).standard_normal(seconds * 16_000)
    return (1e-3 * draw).astype(np.float32)


def plucked(pitches_hz: list[float], seconds: float) -> Floats:
    """Strings plucked one after the other (Karplus and Strong), 0.25 s each."""
    random = np.random.default_rng(1)
    sound = np.zeros(round(seconds * 16_000), np.float32)
    for number, start in enumerate(range(0, sound.size - 4_000, 4_000)):
        period = round(16_000 / pitches_hz[number % len(pitches_hz)])
        line = random.uniform(-0.4, 0.4, period)
        for at in range(start, start + 4_000):
            sound[at] = line[at % period]
            line[at % period] = 0.498 * (line[at % period] + line[(at + 1) % period])
    return sound


def chord(seconds: float) -> Floats:
    """An organ's C major, swelling and fading as hold music does."""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    tones = (np.sin(2 * np.pi * hz * n * time_s) / n for hz in (262, 330, 392) for n in (1, 2, 3))
    return (0.08 * sum(tones) * (1 + np.sin(2 * np.pi * 0.5 * time_s))).astype(np.float32)


def pink(seconds: float) -> Floats:
    """Pink noise at -20 dBFS."""
    spectrum = np.fft.rfft(np.random.default_rng(2).standard_normal(round(seconds * 16_000)))
    sound = np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(spectrum.size))))
    return (0.1 * sound / sound.std()).astype(np.float32)


def tones(seconds: float, *frequencies_hz: float) -> Floats:
    """Steady ones, together."""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    together = sum(np.sin(2 * np.pi * hz * time_s) for hz in frequencies_hz)
    return (0.2 * together).astype(np.float32)


NO_SPEECH: dict[str, Floats] = {
    "white noise": 100 * noise(6),
    "pink noise": pink(10),
    "a chord": chord(10),
    "plucked strings": plucked([262, 330, 392, 523], 10),
    "a tone": tones(6, 440),
    "a high tone": tones(20, 3000),
    "a dial tone": tones(6, 350, 440),
    "hum": (0.2 * np.sign(np.sin(2 * np.pi * 50 * np.arange(6 * 16_000) / 16_000))).astype(
        np.float32
    ),
}
