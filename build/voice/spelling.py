"""Other spellings of the same sounds: what was heard, written as the one who spoke writes."""

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final

import jiwer

from client.wer import words
from python_backends.spoken import Phonemizer

_WORD: Final = re.compile(r"[^\W\d_][^\W\d_']*")
_STRESSES: Final = "ˈˌ"

_FIGURES: Final = re.compile(r"\d+")
_CLOCK: Final = re.compile(r"\b(at|by|from|until) (1[0-2]|[1-9])([0-5]\d)\b(?![-\d]|[.,]\d)", re.I)
"""An hour and minutes without a colon. A telephone number or a price may begin like it."""

_HOURS: Final = "|".join(" ".join(words(str(hour))) for hour in range(1, 13))
_MINUTES: Final = "|".join(("oh", "o", *(words(str(minute))[0] for minute in range(10, 60))))

_DOCTOR: Final = re.compile(r"\bDr\.")


def respelt(heard: str, said: str) -> str:
    """What was heard, with other spellings of the same sounds as what was said has them: "weight"
    for "wait"; "Dr."; times without a colon ("at 945"), where a time was said."""
    spoken = " ".join(words(said))

    def hour_and_minutes(found: re.Match[str]) -> str:
        is_time = re.search(rf"\b{found[1].lower()} ({_HOURS}) ({_MINUTES})\b", spoken)
        return f"{found[1]} {found[2]} {found[3]}" if is_time else found[0]

    heard = _CLOCK.sub(hour_and_minutes, heard)
    if "doctor" in spoken:
        heard = _DOCTOR.sub("Doctor", heard)
    known = {word.lower() for word in _WORD.findall(said)}
    known |= {word for figures in _FIGURES.findall(said) for word in words(figures)}
    by_sound = {_sounds(word): word for word in sorted(known)}

    def spelling(found: re.Match[str]) -> str:
        word = found[0].lower()
        return found[0] if word in known else by_sound.get(_sounds(word), found[0])

    return _in_its_place(_WORD.sub(spelling, heard), said)


def _in_its_place(heard: str, said: str) -> str:
    """Where words of the same sound have been said ("two ... to go"), the one that was said there
    for another of them."""
    expected, got = words(said), words(heard)
    if not _twins(expected).intersection(got):
        return heard
    for chunk in jiwer.process_words(" ".join(expected), " ".join(got)).alignments[0]:
        if chunk.type != "substitute":
            continue
        for place in range(chunk.hyp_end_idx - chunk.hyp_start_idx):
            right = expected[chunk.ref_start_idx + place]
            if _sounds(right) == _sounds(got[chunk.hyp_start_idx + place]):
                got[chunk.hyp_start_idx + place] = right
    return " ".join(got)


def _twins(spoken: Sequence[str]) -> set[str]:
    """Words that sound like another of them."""
    by_sound: dict[tuple[int, ...], set[str]] = {}
    for word in spoken:
        by_sound.setdefault(_sounds(word), set()).add(word)
    return {word for alike in by_sound.values() if len(alike) > 1 for word in alike}


@cache
def _sounds(word: str) -> tuple[int, ...]:
    """Phoneme ids of a word that stands alone, unstressed: "for" has no stress and "four" has."""
    return tuple(phoneme for phoneme in _phonemizer()(word) if phoneme not in _stresses())


@cache
def _phonemizer() -> Phonemizer:
    return Phonemizer()


@cache
def _stresses() -> set[int]:
    """Ids of marks that are no sounds."""
    vocabulary = resources.files("hibari") / "assets" / "vocab.json"
    ids = json.loads(vocabulary.read_text(encoding="utf-8"))
    return {ids[mark] for mark in _STRESSES}
