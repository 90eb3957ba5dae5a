"""What is spoken to the listening half: people, people on the telephone, and orders in noise.

Every corpus is a list of recordings with their texts, the same every time.
"""

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from hibari import Hibari
from numpy.typing import NDArray

from client import audio
from loadtest.downloads import ASTERISK_SOUNDS, ASTERISK_TEXTS, POCKETSPHINX, WHISPER_CPP
from loadtest.stages.orders import ORDERS

Floats = NDArray[np.float32]

SPEECH_RATE_HZ = 24_000
MIN_TELEPHONE_S, MAX_TELEPHONE_S = 3.0, 14.0
NOISES_DB: dict[str, float | None] = {"clean": None, "10_db": 10.0, "5_db": 5.0}

JFK_TEXT = (
    "And so, my fellow Americans, ask not what your country can do for you, "
    "ask what you can do for your country."
)
CARDS = (
    "ten of clubs",
    "four queen of clubs",
    "seven of clubs",
    "five five",
    "eight of spades four of clubs seven of hearts",
)
LIBRIVOX = "sense_and_sensibility_01_austen_64kb"
LIBRIVOX_CLIPS = ("0870", "0880", "0890", "0920", "0930")


@dataclass(frozen=True, eq=False)
class Spoken:
    """A recording, float32 [samples] at 16 kHz, and what is said in it."""

    sound: Floats
    text: str

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.sound) / audio.HEARD_RATE_HZ


def jfk() -> tuple[Path, str]:
    """11 s of a president, and what he says."""
    return WHISPER_CPP.member("whisper.cpp/samples/jfk.wav"), JFK_TEXT


def librivox() -> list[tuple[Path, str]]:
    """Five sentences of Jane Austen, read by a volunteer, and their text."""
    lines = POCKETSPHINX.member("test/data/librivox/transcription").read_text().splitlines()
    texts = dict(_transcription(line) for line in lines if line)
    names = [f"{LIBRIVOX}-{number}" for number in LIBRIVOX_CLIPS]
    return [(POCKETSPHINX.member(f"test/data/librivox/{name}.wav"), texts[name]) for name in names]


def people() -> list[Spoken]:
    """Twelve clips of several people near a microphone. DownloadFailed where they are not had."""
    cards = [
        (POCKETSPHINX.member(f"test/data/cards/00{number}.wav"), text)
        for number, text in enumerate(CARDS, 1)
    ]
    said = [Spoken(audio.read(path), text) for path, text in [jfk(), *librivox(), *cards]]
    raw = np.fromfile(POCKETSPHINX.member("test/data/goforward.raw"), "<i2")
    return [*said, Spoken((raw / 32_768).astype(np.float32), "go forward ten meters")]


def telephone() -> list[Spoken]:
    """Prompts of a telephone system, one speaker, 8 kHz, 3 to 14 s. DownloadFailed without apt.

    Those with notes in brackets are left out: one cannot tell whether they are spoken.
    """
    listed = ASTERISK_TEXTS.member(
        "usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"
    ).read_bytes()
    folder = ASTERISK_SOUNDS.folder() / "usr/share/asterisk/sounds/en_US_f_Allison"
    found = []
    for key, text in prompts(gzip.decompress(listed).decode()):
        path = folder / f"{key}.wav"
        if path.exists() and MIN_TELEPHONE_S <= soundfile.info(path).duration <= MAX_TELEPHONE_S:
            found.append(Spoken(audio.read(path), text))
    return found


def prompts(listed: str) -> list[tuple[str, str]]:
    """(key, text) of the lines "key: text" that hold nothing but speech."""
    lines = [line.partition(":") for line in listed.splitlines() if not line.startswith(";")]
    return [
        (key, text.strip()) for key, _, text in lines if text and not re.search(r"[][<>()]", text)
    ]


def orders(noise_db: float | None) -> list[Spoken]:
    """Orders by a synthetic voice in white noise, so many dB below the speech; None: no noise."""
    voice = Hibari(threads=1)
    found = []
    for number, text in enumerate(ORDERS):
        speech = np.asarray(voice(text, seed=number), np.float32)
        sound = audio.resample(speech, SPEECH_RATE_HZ, audio.HEARD_RATE_HZ)
        found.append(Spoken(sound if noise_db is None else noisy(sound, noise_db, number), text))
    return found


def noisy(sound: Floats, noise_db: float, seed: int) -> Floats:
    """The sound [n] with white noise `noise_db` below its mean power, scaled to fit in -1 to 1."""
    noise = np.random.default_rng(seed).standard_normal(len(sound))
    power = float(np.mean(np.square(sound, dtype=np.float64)))
    mixed = sound + noise * np.sqrt(power * 10 ** (-noise_db / 10))
    return np.asarray(mixed / max(1.0, np.abs(mixed).max()), np.float32)


def seconds(corpus: Sequence[Spoken]) -> float:
    """Of all of it."""
    return sum(one.seconds for one in corpus)


def _transcription(line: str) -> tuple[str, str]:
    """ "<s> text </s> (key)" as (key, text)."""
    found = re.fullmatch(r"<s> (.*) </s> \((.*)\)", line.strip())
    if found is None:
        raise ValueError(f"not a line of a transcription: {line!r}")
    return found.group(2), found.group(1)
