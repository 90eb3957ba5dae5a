"""Has texts spoken by a server, and hears them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
from hibari import Hibari
from rich.progress import Progress

from build.pages import Sound
from build.voice.hearing import Listener
from build.voice.spelling import respelt
from client.requests import TurnOptions
from client.turns import TurnClient
from loadtest.stages.reheard import Heard
from python_backends.speech import SAMPLE_RATE_HZ

T = TypeVar("T")

SILENT_SAMPLES: Final = 3 * SAMPLE_RATE_HZ // 10


class Ears:
    """Callers of `speak` who listen; what was heard once is not heard again.

    Each text is spoken with its number as seed, and `first_seed` added.
    """

    def __init__(self, client: TurnClient, progress: Progress) -> None:
        self.client = client
        self.progress = progress
        self._listener = Listener()
        self._heard: dict[tuple[TurnOptions, str], str] = {}

    def sounds(
        self, asked: TurnOptions, texts: Sequence[str], told: str, first_seed: int = 0
    ) -> list[Sound]:
        """Each text, spoken as it is asked for."""
        each = self._shown(enumerate(texts, first_seed), len(texts), f"{told}, speaks")
        return [self._say(replace(asked, seed=seed), text) for seed, text in each]

    def hear(
        self,
        asked: TurnOptions,
        texts: Sequence[str],
        told: str,
        first_seed: int = 0,
        sounds: Sequence[Sound] | None = None,
    ) -> list[Heard]:
        """What is heard of each text, spoken now or before (`sounds`)."""
        found = []
        each = enumerate(texts, first_seed)
        for at, (seed, text) in enumerate(self._shown(each, len(texts), told)):
            key = (replace(asked, seed=seed), text)
            if key not in self._heard:
                sound = self._say(*key) if sounds is None else sounds[at]
                self._heard[key] = self.words_of(sound, text)
            found.append(Heard(text, self._heard[key]))
        return found

    def hear_teacher(self, texts: Sequence[str]) -> list[Heard]:
        """The same of the teacher."""
        teacher = Hibari(threads=1)
        found = []
        for seed, text in self._shown(enumerate(texts), len(texts), "teacher"):
            sound = np.asarray(teacher(text, seed=seed), np.float32)
            found.append(Heard(text, self.words_of(sound, text)))
        return found

    def words_of(self, sound: Sound, said: str) -> str:
        """Of float32 [n] at 24 kHz, as one hears it who was not speaking himself: after some
        silence. Whisper mishears more of what begins at once, and the teacher takes a breath that
        the server leaves out."""
        return respelt(self._listener.hear(np.pad(sound, (SILENT_SAMPLES, 0))), said)

    def _say(self, asked: TurnOptions, text: str) -> Sound:
        chunks = list(self.client.speak(text, options=asked))
        return np.concatenate([chunk.speech for chunk in chunks])

    def _shown(self, each: Iterable[T], count: int, told: str) -> Iterable[T]:
        task = self.progress.add_task(told, total=count, told="")
        for one in each:
            yield one
            self.progress.advance(task)
