"""How well the voices speak: `evaluate_voice`, a part of `make eval`.

Everything that is heard is spoken by a real server, as its callers get it, and heard by Whisper
tiny.en in full windows, greedily, with the teacher beside it. Pitch and timbre are those of the
same sound. Only how much a sentence varies is told by the torch modules (`spread`), for it takes
the durations of phonemes, which a caller does not get.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

from rich.progress import Progress

from build.fetch import replacing
from build.pages import Sound
from build.voice import weights
from build.voice.curves import STEPS_PICTURE, drawn_steps
from build.voice.ears import Ears
from build.voice.noisy_turns import heard_in_noise
from build.voice.report import Report
from build.voice.speaker import EULER
from build.voice.spread import TEXTS, spreads
from build.voice.unseen import CASES, READ_RIGHT, SENTENCES, UNSEEN
from build.voice.ways import DEFAULT_TEMPERATURE, SOLVERS, STEPS, TEMPERATURES, UNTAUGHT
from client.requests import TurnOptions
from client.turns import TurnClient
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.seed.figures import Target, at_least, at_most
from loadtest.stages.reheard import distance_db, misheard
from loadtest.stages.timbre import centroid_hz, pitch_hz
from python_backends.speech import SAMPLE_RATE_HZ, VOICES

QUALITY: Final = weights.FOLDER / "quality.json"
JUDGED: Final = (
    weights.PROSODY,
    weights.FLOW,
    weights.VOCODER,
    weights.SPEECH,
    UNSEEN,
    READ_RIGHT,
)
"""Files that the figures are figures of."""

TEACHER: Final = "teacher"
SEEDS: Final = (0, 1000)
"""First seeds of the two readings of all sentences."""

FEW: Final = 40
FEWER: Final = 25
"""Sentences of the comparisons of temperatures, and of steps: all of them would take an hour."""

FEWEST, MOST = 2, STEPS[-1]
"""Steps between which no word may be lost."""

POINT: Final = 0.01
TARGETS: Final[dict[str, Target]] = {
    **{f"voice_wer_{voice}": at_most(0.03) for voice in VOICES},
    **{f"voice_wer_{voice}_above_teacher": at_most(POINT) for voice in VOICES},
    **{f"voice_read_right_{voice}": at_least(len(CASES)) for voice in VOICES},
    **{f"voice_wer_{voice}_{FEWEST}_steps_above_{MOST}": at_most(POINT) for voice in VOICES},
    "voice_wer_hottest_above_greedy": at_most(POINT),
    "voice_duration_spread_hottest_by_default": at_least(1.2),
    "voice_f0_spread_hottest_by_default": at_least(1.2),
    "voice_f0_ratio": at_most(0.75),
    "voice_noisy_turns_answered": at_least(20),
    "voice_noisy_turns_heard": at_least(18),
}


def evaluate_voice(progress: Progress) -> dict[str, Any]:
    """Figures by name, all numbers; and `detail`, for readers: what was misheard, and where."""
    report = Report()
    with Server(Settings()) as server, TurnClient(server.grpc_address) as client:
        ears = Ears(client, progress)
        for part in (_voices, _numbers, _sounds, _steps, _temperatures, heard_in_noise):
            part(ears, report)
    report.figures |= spreads(TEMPERATURES, progress)
    for what in ("duration", "f0"):
        hottest, default = (
            report.figures[f"voice_{what}_spread_{TEMPERATURES[i]:g}"] for i in (-1, 1)
        )
        by_default = hottest / default if default else 0.0
        report.figures[f"voice_{what}_spread_hottest_by_default"] = by_default
    return {**report.figures, "detail": report.detail}


def _voices(ears: Ears, report: Report) -> None:
    """All sentences by each voice as it ships, twice, and by the teacher."""
    heard = {
        voice: [
            one
            for seed in SEEDS
            for one in ears.hear(TurnOptions(voice=voice), SENTENCES, f"{voice}, {seed}", seed)
        ]
        for voice in VOICES
    }
    heard[TEACHER] = ears.hear_teacher(SENTENCES)
    rates = {name: report.count_words(f"voice_wer_{name}", each) for name, each in heard.items()}
    for voice in VOICES:
        report.figures[f"voice_wer_{voice}_above_teacher"] = rates[voice] - rates[TEACHER]
    report.detail["misheard"] = {name: misheard(each) for name, each in heard.items()}


def _numbers(ears: Ears, report: Report) -> None:
    """Prices, times and numbers: how many of the cases are heard as they are to be read."""
    texts = [case.text for case in CASES]
    heard = {voice: ears.hear(TurnOptions(voice=voice), texts, voice) for voice in VOICES}
    heard[TEACHER] = ears.hear_teacher(texts)
    wrong = {
        name: [
            {"said": case.text, "heard": one.heard}
            for case, one in zip(CASES, each, strict=True)
            if not case.is_heard_right(one.heard)
        ]
        for name, each in heard.items()
    }
    for name, cases in wrong.items():
        report.figures[f"voice_read_right_{name}"] = float(len(CASES) - len(cases))
    report.detail["numbers_misheard"] = wrong


def _sounds(ears: Ears, report: Report) -> None:
    """How high and how bright the voices are in the same texts."""
    measured = {"f0": pitch_hz, "centroid": centroid_hz}
    for voice in VOICES:
        sounds = ears.sounds(TurnOptions(voice=voice), TEXTS, voice)
        for name, measure in measured.items():
            report.figures[f"voice_{name}_hz_{voice}"] = fmean(map(measure, sounds))
    for name in measured:
        alto, baritone = (report.figures[f"voice_{name}_hz_{voice}"] for voice in VOICES)
        report.figures[f"voice_{name}_ratio"] = baritone / alto


def _steps(ears: Ears, report: Report) -> None:
    """Words misheard, and distance from the most steps, over steps; greedy prosody."""
    texts = SENTENCES[:FEWER]
    for voice in VOICES:
        ways: list[tuple[int, str | None]] = [(steps, None) for steps in reversed(STEPS)]
        if voice == VOICES[0]:
            ways += [(steps, EULER) for steps in UNTAUGHT]
        finest: list[Sound] = []
        for steps, solver in ways:
            name = f"{voice}_{solver or SOLVERS[steps]}_{steps}_steps"
            asked = TurnOptions(voice=voice, steps=steps, solver=solver, speech_temperature=0.0)
            sounds = ears.sounds(asked, texts, name)
            finest = finest or sounds
            report.figures[f"voice_distance_db_{name}"] = fmean(
                distance_db(one, fine, SAMPLE_RATE_HZ)
                for one, fine in zip(sounds, finest, strict=True)
            )
            if steps > 1:
                heard = ears.hear(asked, texts, name, sounds=sounds)
                report.count_words(f"voice_wer_{name}", heard)
        fewest, most = (
            report.figures[f"voice_wer_{voice}_{SOLVERS[steps]}_{steps}_steps"]
            for steps in (FEWEST, MOST)
        )
        report.figures[f"voice_wer_{voice}_{FEWEST}_steps_above_{MOST}"] = fewest - most


def _temperatures(ears: Ears, report: Report) -> None:
    """Words misheard over the temperature of the prosody, by the default voice."""
    rates = []
    for one in TEMPERATURES:
        asked = TurnOptions(voice=VOICES[0])
        if one != DEFAULT_TEMPERATURE:
            asked = replace(asked, speech_temperature=one)
        heard = ears.hear(asked, SENTENCES[:FEW], f"temperature {one:g}")
        rates.append(report.count_words(f"voice_wer_temperature_{one:g}", heard))
    report.figures["voice_wer_hottest_above_greedy"] = rates[-1] - rates[0]


def hashes() -> dict[str, str]:
    """sha256 of each file of JUDGED, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in JUDGED}


def record(found: Mapping[str, Any]) -> None:
    """Writes what `evaluate_voice` found beside the weights, as their `quality.json`, and the
    picture of its steps."""
    rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}
    with replacing(QUALITY) as partial:
        told = json.dumps({"files": hashes(), **rounded}, indent=1, ensure_ascii=False)
        partial.write_text(told + "\n", encoding="utf-8")
    with replacing(STEPS_PICTURE) as picture:
        picture.write_bytes(drawn_steps(found))
