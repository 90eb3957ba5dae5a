"""How well the voices speak: `evaluate_voice`, a part of `make eval`.

Everything is spoken by a real server, as its callers hear it, and heard again by Whisper tiny.en in
full windows, greedily, beside the teacher. Only how much a sentence varies is told by the torch
modules, whose F0 and durations can be looked at.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final, TypeVar

import numpy as np
from hibari import Hibari
from numpy.typing import NDArray
from rich.progress import Progress

from build.fetch import replacing
from build.voice.curves import STEPS_PICTURE, drawn_steps
from build.voice.hearing import Listener
from build.voice.noisy_turns import heard_in_noise
from build.voice.spelling import respelt
from build.voice.spread import spreads
from build.voice.unseen import CASES, SENTENCES
from build.voice.weights import FOLDER
from client.requests import TurnOptions
from client.turns import TurnClient
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.seed.figures import Target, at_least, at_most
from loadtest.stages.reheard import Heard, distance_db, misheard, word_error_rate
from python_backends.speech import SAMPLE_RATE_HZ, VOICES

Sound = NDArray[np.float32]
T = TypeVar("T")

TEACHER: Final = "teacher"
FEW: Final = 40
FEWER: Final = 25
"""Sentences of the comparisons of temperatures, and of steps: all of them would take an hour."""


@dataclass(frozen=True)
class Way:
    """How a text is spoken."""

    voice: str = VOICES[0]
    solver: str = "shortcut"
    steps: int = 4
    temperature: float = 0.3

    @property
    def name(self) -> str:
        return f"{self.voice}_{self.solver}_{self.steps}_steps"


SHIPPED_STEPS: Final = (("shortcut", 2), ("shortcut", 4), ("euler", 8), ("euler", 16))
"""What a caller gets who names 2, 4, 8 or 16 steps and no solver."""

UNTAUGHT_STEPS: Final = (("euler", 2), ("euler", 4))
UNHEARD_STEPS: Final = (("shortcut", 1), ("euler", 1))
"""Their words are not counted."""

TEMPERATURES: Final = (0.0, 0.3, 1.0)
"""Of the prosody; the second is the default, the last the most that is accepted."""

SILENT_SAMPLES: Final = 3 * SAMPLE_RATE_HZ // 10
POINT: Final = 0.01
TARGETS: Final[dict[str, Target]] = {
    **{f"voice_wer_{voice}": at_most(0.03) for voice in VOICES},
    **{f"voice_wer_{voice}_above_teacher": at_most(POINT) for voice in VOICES},
    **{f"voice_read_right_{voice}": at_least(len(CASES)) for voice in VOICES},
    "voice_wer_2_steps_above_16": at_most(POINT),
    "voice_wer_hottest_above_greedy": at_most(POINT),
    "voice_duration_spread_hottest_by_default": at_least(1.2),
    "voice_f0_spread_hottest_by_default": at_least(1.2),
    "voice_f0_ratio": at_most(0.75),
    "voice_noisy_turns_answered": at_least(20),
    "voice_noisy_turns_heard": at_least(18),
}

Part = tuple[dict[str, float], dict[str, Any]]
"""Figures, and what readers may want to know."""


class _Ears:
    """Has texts spoken by a server, and hears them; what was heard once is not heard again."""

    def __init__(self, client: TurnClient, progress: Progress) -> None:
        self._client = client
        self._listener = Listener()
        self._progress = progress
        self._heard: dict[tuple[Way, str, int], str] = {}

    def say(self, way: Way, text: str, seed: int) -> Sound:
        """A text as a caller of `speak` gets it."""
        options = TurnOptions(
            voice=way.voice,
            solver=way.solver,
            steps=way.steps,
            speech_temperature=way.temperature,
            seed=seed,
        )
        chunks = list(self._client.speak(text, options=options))
        return np.concatenate([chunk.speech for chunk in chunks])

    def hear(
        self, way: Way, texts: Sequence[str], sounds: Sequence[Sound] | None = None
    ) -> list[Heard]:
        """What is heard of each text, spoken with its number as seed, now or before (`sounds`)."""
        found = []
        told = f"{way.name}, temperature {way.temperature:g}"
        for seed, text in self._shown(enumerate(texts), len(texts), told):
            key = (way, text, seed)
            if key not in self._heard:
                sound = self.say(*key) if sounds is None else sounds[seed]
                self._heard[key] = self._words_of(sound, text)
            found.append(Heard(text, self._heard[key]))
        return found

    def hear_teacher(self, texts: Sequence[str]) -> list[Heard]:
        """The same of the teacher."""
        teacher = Hibari(threads=1)
        found = []
        for seed, text in self._shown(enumerate(texts), len(texts), TEACHER):
            sound = np.asarray(teacher(text, seed=seed), np.float32)
            found.append(Heard(text, self._words_of(sound, text)))
        return found

    def _words_of(self, sound: Sound, text: str) -> str:
        """As one hears it who was not speaking himself: after some silence. Whisper mishears more
        of what begins at once, and the teacher takes a breath that the server leaves out."""
        return respelt(self._listener.hear(np.pad(sound, (SILENT_SAMPLES, 0))), text)

    def sounds(self, way: Way, texts: Sequence[str]) -> list[Sound]:
        """Each text, spoken with its number as seed."""
        each = self._shown(enumerate(texts), len(texts), f"{way.name}, distance")
        return [self.say(way, text, seed) for seed, text in each]

    def _shown(self, each: Iterable[T], count: int, told: str) -> Iterable[T]:
        task = self._progress.add_task(told, total=count, told="")
        for one in each:
            yield one
            self._progress.advance(task)


def evaluate_voice(progress: Progress) -> dict[str, Any]:
    """Figures by name, all numbers; and `detail`, for readers: what was misheard, and where."""
    figures: dict[str, Any] = {}
    detail: dict[str, Any] = {}
    with Server(Settings()) as server, TurnClient(server.grpc_address) as client:
        ears = _Ears(client, progress)
        parts = [part(ears) for part in (_voices, _numbers, _steps, _temperatures)]
        parts.append(heard_in_noise(client, progress))
    for found, told in parts:
        figures |= found
        detail |= told
    figures |= spreads(TEMPERATURES, progress)
    for what in ("duration", "f0"):
        hottest, default = (figures[f"voice_{what}_spread_{TEMPERATURES[i]:g}"] for i in (-1, 1))
        figures[f"voice_{what}_spread_hottest_by_default"] = hottest / default
    return {**figures, "detail": detail}


def _voices(ears: _Ears) -> Part:
    """All sentences by each voice as it ships, and by the teacher."""
    heard = {voice: ears.hear(Way(voice), SENTENCES) for voice in VOICES}
    heard[TEACHER] = ears.hear_teacher(SENTENCES)
    figures = {f"voice_wer_{name}": word_error_rate(all_of) for name, all_of in heard.items()}
    for voice in VOICES:
        above = figures[f"voice_wer_{voice}"] - figures[f"voice_wer_{TEACHER}"]
        figures[f"voice_wer_{voice}_above_teacher"] = above
    return figures, {"misheard": {name: misheard(all_of) for name, all_of in heard.items()}}


def _numbers(ears: _Ears) -> Part:
    """Prices, times and numbers: how many of the cases are heard as they are to be read."""
    texts = [case.text for case in CASES]
    heard = {voice: ears.hear(Way(voice), texts) for voice in VOICES}
    heard[TEACHER] = ears.hear_teacher(texts)
    wrong = {
        name: [
            {"said": case.text, "heard": one.heard}
            for case, one in zip(CASES, all_of, strict=True)
            if not case.is_heard_right(one.heard)
        ]
        for name, all_of in heard.items()
    }
    right = {f"voice_read_right_{name}": float(len(CASES) - len(wrong[name])) for name in wrong}
    return right, {"numbers_misheard": wrong}


def _steps(ears: _Ears) -> Part:
    """Words misheard, and distance from the most steps, over steps; greedy prosody."""
    texts = SENTENCES[:FEWER]
    figures: dict[str, float] = {}
    for voice in VOICES:
        heard = SHIPPED_STEPS + (UNTAUGHT_STEPS if voice == VOICES[0] else ())
        finest = ears.sounds(Way(voice, *SHIPPED_STEPS[-1], 0.0), texts)
        for solver, steps in heard + UNHEARD_STEPS:
            way = Way(voice, solver, steps, 0.0)
            sounds = ears.sounds(way, texts)
            if (solver, steps) in heard:
                figures[f"voice_wer_{way.name}"] = word_error_rate(ears.hear(way, texts, sounds))
            far = zip(sounds, finest, strict=True)
            figures[f"voice_distance_db_{way.name}"] = fmean(
                distance_db(one, fine, SAMPLE_RATE_HZ) for one, fine in far
            )
    fewest, most = (Way(VOICES[0], *SHIPPED_STEPS[i]).name for i in (0, -1))
    above = figures[f"voice_wer_{fewest}"] - figures[f"voice_wer_{most}"]
    return {**figures, "voice_wer_2_steps_above_16": above}, {}


def _temperatures(ears: _Ears) -> Part:
    """Words misheard over the temperature of the prosody."""
    figures = {
        f"voice_wer_temperature_{one:g}": word_error_rate(
            ears.hear(Way(temperature=one), SENTENCES[:FEW])
        )
        for one in TEMPERATURES
    }
    hottest, greedy = (figures[f"voice_wer_temperature_{TEMPERATURES[i]:g}"] for i in (-1, 0))
    return {**figures, "voice_wer_hottest_above_greedy": hottest - greedy}, {}


def record(found: Mapping[str, Any]) -> None:
    """Writes what `evaluate_voice` found beside the weights, as their `quality.json`, and the
    picture of its steps."""
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}
    with replacing(FOLDER / "quality.json") as partial:
        told = json.dumps(rounded, indent=1, ensure_ascii=False)
        partial.write_text(told + "\n", encoding="utf-8")
    with replacing(STEPS_PICTURE) as picture:
        picture.write_bytes(drawn_steps(found))
