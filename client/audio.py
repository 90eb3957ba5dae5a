"""Audio files in and out: whatever a user has, to the float32 mono 16 kHz that the stages hear."""

import io
import struct
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from python_backends.errors import InvalidInput

Floats = npt.NDArray[np.float32]

HEARD_RATE_HZ = 16_000
MAX_SECONDS = 60
MIN_RATE_HZ, MAX_RATE_HZ = 4_000, 384_000
MAX_CHANNELS = 32
HOT_PEAK = 2.0
"""Floats up to here are a loud mix and scaled down; beyond, they are in some other unit."""
INT16_PEAKS = (256.0, 32_768.0)
"""Float peaks that only 16-bit values written as floats have; even whispered speech passes 256."""
BLOCK_FRAMES = 65_536
ACCEPTED = "wav, flac and ogg files are accepted"
CUT_SHORT = ("MP3",)
"""Formats that libsndfile opens, but may leave long before their end without a word."""


def read(path: Path | str) -> Floats:
    """The sound of a wav, flac or ogg file as float32 [samples], mono, 16 kHz, within -1 and 1.

    Any rate from 4 to 384 kHz, any sample width, up to 32 channels, which are averaged.
    Raises InvalidInput, which says what was wrong and what is accepted.
    """
    path = Path(path)
    try:
        with _opened(path) as recording, soundfile.SoundFile(recording) as file:
            mono, rate_hz = _mono(file, path.name), int(file.samplerate)
    except soundfile.LibsndfileError as fault:
        raise InvalidInput(f"{path.name} is not readable as audio; {ACCEPTED}") from fault
    return resample(_in_range(mono, path.name), rate_hz, HEARD_RATE_HZ)


def resample(audio: Floats, rate_hz: int, to_hz: int) -> Floats:
    """float32 [samples] at another rate; a sound of at least one sample never becomes empty."""
    if rate_hz == to_hz or not audio.size:
        return audio
    changed = np.asarray(soxr.resample(audio, rate_hz, to_hz), np.float32)
    return np.clip(changed, -1, 1) if changed.size else audio[:1]


def write(path: Path | str, audio: Floats, rate_hz: int) -> None:
    """Write float32 [samples] as a mono 16-bit WAV whose header counts exactly these samples.

    Raises InvalidInput for anything but one row of finite samples; values beyond ±1 are clipped.
    """
    if audio.ndim != 1 or not np.isfinite(audio).all():
        raise InvalidInput(f"{Path(path).name}: only one row of finite samples can be written")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate_hz)
        out.writeframes((np.clip(audio, -1, 1) * 32_767).round().astype("<i2").tobytes())


def _opened(path: Path) -> "_Recording":
    try:
        if not path.is_file():
            path.stat()
            raise InvalidInput(f"{path} cannot be opened: not a file; {ACCEPTED}")
        recording = _Recording(path)
    except OSError as fault:
        raise InvalidInput(f"{path} cannot be opened: {fault.strerror}") from fault
    if not recording.seek(0, io.SEEK_END):
        recording.close()
        raise InvalidInput(f"{path.name} is empty; {ACCEPTED}")
    recording.mark_open_end()
    return recording


class _Recording(io.FileIO):
    """A file that reads as itself, except that the size of a streamed WAV's data reads as unknown.

    A writer that streams leaves 0, 0x7FFFFFFF or 0xFFFFFFFF there. libsndfile clamps too large a
    size to the bytes that are there, but believes a 0.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self.name = ""  # formats are told by content: soundfile would look at the ending here
        self._unknown: range = range(0)

    def mark_open_end(self) -> None:
        """Find a data chunk of stated size 0 with samples behind it; rewind."""
        end = self.seek(0, io.SEEK_END)
        self.seek(0)
        head = self.read(12)
        if head[:4] == b"RIFF" and head[8:] == b"WAVE":
            for name, at, size in self._chunks(12):
                if name == b"data":
                    if size == 0 and not self._only_chunks(at + 8, end):
                        self._unknown = range(at + 4, at + 8)
                    break
        self.seek(0)

    def readinto(self, buffer: Any) -> int:
        """As of any file, with every byte of an unknown size read as 0xFF."""
        start = self.tell()
        view = memoryview(buffer).cast("B")
        count = super().readinto(view) or 0
        for at in self._unknown:
            if start <= at < start + count:
                view[at - start] = 0xFF
        return count

    def _chunks(self, at: int) -> Iterator[tuple[bytes, int, int]]:
        """(name, offset, stated size) of each RIFF chunk from offset `at` on."""
        while True:
            self.seek(at)
            head = self.read(8)
            if len(head) < 8:
                return
            name, size = struct.unpack("<4sI", head)
            yield name, at, size
            at += 8 + size + size % 2

    def _only_chunks(self, at: int, end: int) -> bool:
        """Whether well-formed chunks, or nothing, fill the file from offset `at` to its end."""
        for name, start, size in self._chunks(at):
            at = start + 8 + size + size % 2
            if not name.isascii() or not name.decode("ascii").isprintable():
                return False
        return at in (end, end + 1)


def _mono(file: Any, name: str) -> Floats:
    """All frames of an open SoundFile, channels averaged, read block by block."""
    _check_form(file, name)
    blocks: list[Floats] = []
    for block in file.blocks(BLOCK_FRAMES, dtype="float32", always_2d=True):
        blocks.append(block.mean(axis=1, dtype=np.float32))
        _check_seconds(sum(map(len, blocks)), file.samplerate, name)
    if not blocks:
        raise InvalidInput(f"{name} holds no samples; 1 sample to {MAX_SECONDS} s are accepted")
    return np.concatenate(blocks)


def _check_form(file: Any, name: str) -> None:
    if file.format in CUT_SHORT:
        raise InvalidInput(f"{name} is {file.format}, which may be cut short; {ACCEPTED}")
    if not MIN_RATE_HZ <= file.samplerate <= MAX_RATE_HZ:
        raise InvalidInput(
            f"{name} has a sample rate of {file.samplerate} Hz; "
            f"{MIN_RATE_HZ} to {MAX_RATE_HZ} Hz are accepted"
        )
    if file.channels > MAX_CHANNELS:
        raise InvalidInput(f"{name} has {file.channels} channels; 1 to {MAX_CHANNELS} are accepted")
    _check_seconds(file.frames, file.samplerate, name)


def _check_seconds(frames: int, rate_hz: int, name: str) -> None:
    if frames > MAX_SECONDS * rate_hz:
        raise InvalidInput(
            f"{name} is {frames / rate_hz:.2f} s long; at most {MAX_SECONDS} s are accepted"
        )


def _in_range(mono: Floats, name: str) -> Floats:
    """Samples within ±1: a loud mix and 16-bit values in floats are scaled, others refused."""
    if not np.isfinite(mono).all():
        raise InvalidInput(f"{name} holds NaN or infinite samples; finite ones are accepted")
    peak = float(np.abs(mono).max())
    if peak <= 1:
        return mono
    if peak <= HOT_PEAK:
        return mono / np.float32(peak)
    low, high = INT16_PEAKS
    if low <= peak <= high:
        return mono / np.float32(high)
    raise InvalidInput(
        f"{name} has samples up to {peak:g}; floats of -1 to 1, or of 16-bit range, are accepted"
    )
