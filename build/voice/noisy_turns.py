"""Whole turns in noise: an order is spoken, something is in the room, and `turn` must answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hibari import Hibari
from numpy.typing import NDArray

from build.voice.ears import Ears
from build.voice.report import Report
from build.voice.unseen import SENTENCES
from client import audio
from client.turns import TurnClient, TurnOptions
from client.wer import words
from loadtest.stages.orders import ORDERS
from loadtest.stages.reheard import Heard, misheard, word_error_rate
from python_backends.errors import StageError
from python_backends.ordering.exchange import join_pieces
from python_backends.speech import SAMPLE_RATE_HZ, VOICES

Floats = NDArray[np.float32]

TURNS: Final = 20
LEVELS_DB: Final = (20, 15, 10, 8, 5)
"""Signal to noise; each for two turns of each kind of noise."""

KINDS: Final = ("white", "babble")
TALKERS: Final = 6
"""Readings that the babble is made of: one voice, that of the customers, six times."""

HEARD_RIGHT: Final = 0.1
"""An order counts as heard right when no more than every tenth word is wrong."""

SHORTEST_ANSWER_S: Final = 0.5


@dataclass(frozen=True, eq=False)
class NoisyOrder:
    """One spoken order, float32 [n] at 16 kHz, with its noise and without."""

    text: str
    kind: str
    level_db: int
    sound: Floats
    clean: Floats
    voice: str
    """Who is to answer."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What `turn` made of an order."""

    heard: str
    text: str
    speech: Floats
    """[n] at 24 kHz."""

    error: str = ""

    @property
    def is_there(self) -> bool:
        """In words and in sound."""
        return bool(self.text) and len(self.speech) >= SHORTEST_ANSWER_S * SAMPLE_RATE_HZ


def heard_in_noise(ears: Ears, report: Report) -> None:
    """Orders heard right, turns answered with words and sound, answers that are those without
    noise, and the errors of the words: of the orders, and of the answers when heard again."""
    task = ears.progress.add_task("orders in noise", total=TURNS, told="")
    told: list[dict[str, Any]] = []
    heard, replies = [], []
    for order in noisy_orders():
        noisy, clean = (_answer(ears.client, order, sound) for sound in (order.sound, order.clean))
        heard.append(Heard(order.text, noisy.heard))
        if noisy.is_there:
            replies.append(Heard(noisy.text, ears.words_of(noisy.speech, noisy.text)))
        told.append(_told(order, noisy, clean))
        ears.progress.advance(task)
    right = [word_error_rate([one]) <= HEARD_RIGHT for one in heard]
    report.figures |= {
        "voice_noisy_turns": float(len(told)),
        "voice_noisy_turns_heard": float(sum(right)),
        "voice_noisy_turns_answered": float(sum(one["answered"] for one in told)),
        "voice_noisy_turns_same_answer": float(sum(one["same_answer"] for one in told)),
    }
    report.count_words("voice_noisy_wer", heard)
    for kind in KINDS:
        of_kind = [one for one, turn in zip(heard, told, strict=True) if turn["noise"] == kind]
        report.count_words(f"voice_noisy_wer_{kind}", of_kind)
    if replies:
        report.count_words("voice_noisy_reply_wer", replies)
    report.detail["noisy_turns"] = told
    report.detail["noisy_replies_misheard"] = misheard(replies)


def noisy_orders() -> Iterator[NoisyOrder]:
    """Always the same: every level twice in white noise and twice in babble, and each of these
    pairs answered once by each voice."""
    customer = Hibari(threads=1)
    crowd = [_said(customer, text, seed) for seed, text in enumerate(SENTENCES[20 : 20 + TALKERS])]
    for number, text in enumerate(ORDERS[:TURNS]):
        kind, pair = KINDS[number % 2], number // 2
        level, voice = LEVELS_DB[pair % len(LEVELS_DB)], VOICES[pair % len(VOICES)]
        rng = np.random.default_rng(number)
        speech = _said(customer, text, number)
        noise = _noise(kind, len(speech), crowd, rng)
        yield NoisyOrder(text, kind, level, mixed(speech, noise, level), speech, voice)


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


def _answer(client: TurnClient, order: NoisyOrder, sound: Floats) -> Answer:
    try:
        chunks = list(client.turn(sound, options=TurnOptions(voice=order.voice)))
    except StageError as fault:
        return Answer("", "", np.zeros(0, np.float32), str(fault))
    text = join_pieces(chunk.text for chunk in chunks)
    return Answer(chunks[0].heard, text, np.concatenate([chunk.speech for chunk in chunks]))


def _told(order: NoisyOrder, noisy: Answer, clean: Answer) -> dict[str, Any]:
    """For readers."""
    found = {
        "said": order.text,
        "noise": order.kind,
        "level_db": order.level_db,
        "voice": order.voice,
        "heard": noisy.heard,
        "answer": noisy.text,
        "answered": noisy.is_there,
        "same_answer": noisy.is_there and words(noisy.text) == words(clean.text),
    }
    if not found["same_answer"]:
        found["answer_without_noise"] = clean.text
    return found | ({"error": noisy.error} if noisy.error else {})
