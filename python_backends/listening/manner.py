"""How a transcript ends: whether more is likely to follow. English only, as the models are."""

import re

from python_backends.scheduling.endpoint import Manner

WORDS = re.compile(r"[a-z']+")
ENDS = re.compile(r"[.?!][\"')\]]*$")
TRAILS_OFF = re.compile(r"(\.\.\.|\N{HORIZONTAL ELLIPSIS}|[,;:\N{EN DASH}\N{EM DASH}-])[\"')\]]*$")

CLOSING = re.compile(
    r"""\b(please|thanks|thank\s+you(\s+(so|very)\s+much)?|(that's|that\s+is|that\s+was|that'll\s+be|
    that\s+will\s+be)\s+(it|all|everything)|bye|goodbye)[.!?"']*$""",
    re.IGNORECASE | re.VERBOSE,
)
ASKS = re.compile(r"\?[\"')\]]*$")
QUESTION_WORDS = 4
"""Of the shortest sentence that is taken for a question: the recogniser puts the mark behind "Do
you have" as well."""

HANGING = frozenset(
    WORDS.findall(
        """a an the and or but so plus also with without for of to in on at from by as like than
        that my your his her our their this these those some any no i we you he she they it's
        i'm i'd i'll i've we'd we'll let's can could would will shall may might should is are
        was were am be been do does did have has had get make want wanna need add one two three
        four five six seven eight nine ten another more extra um uh er erm hmm well if when
        because then maybe"""
    )
)
"""A sentence seldom stops behind one of these, whatever mark was put there; where it does ("I'd
like two"), the turn ends a second later."""


def manner_of(text: str) -> Manner:
    """Of what was said so far. Full stops count for little: the recogniser ends with one whatever
    it heard, so that the last word decides before the mark does."""
    text, words = text.strip(), WORDS.findall(text.lower())
    if CLOSING.search(text):
        return Manner.CLOSED
    if not words:
        return Manner.UNKNOWN
    if TRAILS_OFF.search(text) or words[-1] in HANGING:
        return Manner.HANGING
    if ASKS.search(text):
        return Manner.CLOSED if len(words) >= QUESTION_WORDS else Manner.UNKNOWN
    return Manner.COMPLETE if ENDS.search(text) else Manner.UNKNOWN
