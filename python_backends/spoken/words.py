"""Any text of an LLM or a caller to words: what an eye reads is said, what only it can see is not.

Each step leaves text that the next one understands. Plain numbers, money, dates, times, units and
titles are left to hibari, which reads those well; what follows is about what it misreads.
"""

from python_backends.spoken.addresses import say_addresses
from python_backends.spoken.amounts import say_amounts
from python_backends.spoken.characters import readable
from python_backends.spoken.markdown import plain
from python_backends.spoken.numbers import say_numbers
from python_backends.spoken.punctuation import pauses
from python_backends.spoken.rules import Rules
from python_backends.spoken.streets import say_streets
from python_backends.spoken.tables import ABBREVIATIONS
from python_backends.spoken.telephones import say_telephones

_say_abbreviations = Rules(ABBREVIATIONS)


def spoken_text(written: str) -> str:
    """English words, numbers and marks of pause; empty where nothing can be said.

    Emoji, emoticons and words of other scripts are left out: a voice that says "thumbs up" or
    spells Chinese helps nobody. Plain sentences stay as they are.
    """
    text = say_addresses(readable(plain(written)))
    if any(map(str.isdigit, text)):
        text = say_amounts(say_numbers(say_streets(say_telephones(text))))
    words = pauses(_say_abbreviations(text))
    return words if any(map(str.isalnum, words)) else ""
