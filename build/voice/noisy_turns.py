"""Whole turns in noise: an order is spoken, something is in the room, and `turn` must answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hibari import Hibari
from numpy.typing import NDArray
from rich.progress import Progress

from build.voice.unseen import SENTENCES
from client import audio
from client.responses import join_pieces
from client.turns import TurnClient
from loadtest.stages.orders import ORDERS
from loadtest.stages.reheard import Heard, word_error_rate
from python_backends.errors import StageError
from python_backends.speech import SAMPLE_RATE_HZ

Floats = NDArray[np.float32]

TURNS: Final = 20
LEVELS_DB: Final = (20, 15, 10, 8, 5)
"""Signal to noise; each for two turns of each kind of noise."""

KINDS: Final = ("white", "babble")
TALKERS: Final = 6
"""Voices of the babble."""

HEARD_RIGHT: Final = 0.1
"""An order counts as heard right when no more than every tenth word is wrong."""

SHORTEST_ANSWER_S: Final = 0.5


@dataclass(frozen=True, eq=False)
class Order:
    """One spoken order, float32 [n] at 16 kHz, with its noise."""

    text: str
    kind: str
    level_db: int
    sound: Floats


def heard_in_noise(
    client: TurnClient, progress: Progress
) -> tuple[dict[str, float], dict[str, Any]]:
    """Orders heard right, turns answered with words and sound, and the words' error rate."""
    task = progress.add_task("orders in noise", total=TURNS, told="")
    told, heard = [], []
    for order in orders():
        answer = _answered(client, order)
        told.append(answer)
        heard.append(Heard(order.text, answer["heard"]))
        progress.advance(task)
    right = [word_error_rate([one]) <= HEARD_RIGHT for one in heard]
    figures = {
        "voice_noisy_turns": float(len(told)),
        "voice_noisy_turns_heard": float(sum(right)),
        "voice_noisy_turns_answered": float(sum(one["answered"] for one in told)),
        "voice_noisy_wer": word_error_rate(heard),
    }
    for kind in KINDS:
        of_kind = [one for one, turn in zip(heard, told, strict=True) if turn["noise"] == kind]
        figures[f"voice_noisy_wer_{kind}"] = word_error_rate(of_kind)
    return figures, {"noisy_turns": told}


def orders() -> Iterator[Order]:
    """Always the same: every level twice in white noise and twice in babble."""
    voice = Hibari(threads=1)
    crowd = [_said(voice, text, seed) for seed, text in enumerate(SENTENCES[20 : 20 + TALKERS])]
    for number, text in enumerate(ORDERS[:TURNS]):
        kind, level = KINDS[number % 2], LEVELS_DB[number // 2 % len(LEVELS_DB)]
        rng = np.random.default_rng(number)
        speech = _said(voice, text, number)
        noise = _noise(kind, len(speech), crowd, rng)
        yield Order(text, kind, level, mixed(speech, noise, level))


def _said(voice: Hibari, text: str, seed: int) -> Floats:
    spoken = np.asarray(voice(text, seed=seed), np.float32)
    return audio.resample(spoken, SAMPLE_RATE_HZ, audio.HEARD_RATE_HZ)


def _noise(kind: str, samples: int, crowd: list[Floats], rng: np.random.Generator) -> Floats:
    if kind == "white":
        return rng.standard_normal(samples, np.float32)
    talk = np.zeros(samples, np.float32)
    for one in crowd:
        repeated = np.resize(np.roll(one, int(rng.integers(len(one)))), samples)
        talk += repeated / np.sqrt(np.mean(np.square(one)))
    return talk


def mixed(speech: Floats, noise: Floats, level_db: float) -> Floats:
    """Speech [n] with noise [n] `level_db` below its mean power, scaled to fit in -1 to 1."""
    power = np.mean(np.square(speech)) / np.mean(np.square(noise))
    sum_of_both = speech + noise * np.sqrt(power * 10 ** (-level_db / 10))
    return np.asarray(sum_of_both / max(1.0, float(np.abs(sum_of_both).max())), np.float32)


def _answered(client: TurnClient, order: Order) -> dict[str, Any]:
    about = {"said": order.text, "noise": order.kind, "level_db": order.level_db}
    try:
        chunks = list(client.turn(order.sound))
    except StageError as fault:
        return {**about, "heard": "", "answer": "", "answered": False, "error": str(fault)}
    answer = join_pieces(chunk.text for chunk in chunks)
    seconds = sum(len(chunk.speech) / chunk.sample_rate_hz for chunk in chunks)
    return {
        **about,
        "heard": chunks[0].heard,
        "answer": answer,
        "answered": bool(answer) and seconds >= SHORTEST_ANSWER_S,
    }
