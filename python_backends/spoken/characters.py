"""Characters that can be read aloud; all others become blanks."""

import re
import unicodedata
from functools import lru_cache

_WORDS = {
    "\u2044": "/",
    "\u2212": "-",
    "\u2010": "-",
    "\u2011": "-",
    "\u2013": "-",
    "\u2018": "'",
    "\u2019": "'",
    "\u2032": "'",
    "\u3002": ". ",
    "\u3001": ", ",
    "ß": "ss",
    "æ": "ae",
    "Æ": "Ae",
    "œ": "oe",
    "Œ": "Oe",
    "ø": "o",
    "Ø": "O",
    "ł": "l",
    "Ł": "L",
    "№": " number ",
    "≤": " at most ",
    "≥": " at least ",
    "≠": " is not ",
    "≈": " about ",
    "√": " root of ",
    "∞": " infinity ",
    "→": " to ",
    "⇒": " to ",
    "™": "",
    "®": "",
    "\u00ad": "",
}
"""What is said or written for a character that hibari does not know."""

_KEPT = frozenset("°¢§±\u00d7÷©µ²³£€¥₹₩₽₿₺₪₫₴₦₱\u2033—…“”„«»")
"""Not ASCII, and read or taken away by a later step or by hibari."""

_EMOTICON = re.compile(
    r"(?<!\S)(?:[:;][-'^o]?[()DPpOo3|/\\]+|=[()DPp]+|[xX]D|\^_?\^)(?![^\s.,!?])"
    r"|(?<!\S)<3+(?=\s*(?:[.,!?]|$))"
)
"""A heart inside a sentence may be "less than 3", and eyes that are digits may be a number."""

_VARIATION = re.compile("[\ufe00-\ufe0f\u20e3]")
_FRACTION = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_MICRO = re.compile(r"μ(?=[mgsLlFAVW]\b)")
_GREEK = re.compile(r"(?<![\u0370-\u03ff])[\u0391-\u03c9](?![\u0370-\u03ff])")
_DIAERESIS = "\u0308"


def readable(text: str) -> str:
    """Latin letters, digits, ASCII marks and the signs of later steps."""
    text = _EMOTICON.sub(" ", _VARIATION.sub("", text))
    if text.isascii():
        return "".join(_read(one) for one in text)
    text = _FRACTION.sub(" ", _MICRO.sub("µ", unicodedata.normalize("NFC", text)))
    return "".join(map(_read, _GREEK.sub(_named, text)))


def _named(letter: re.Match[str]) -> str:
    """A Greek letter alone is a name in a formula; words are left out."""
    name = unicodedata.name(letter.group(), "").split(" WITH ")[0]
    return f" {name.rpartition(' ')[2].lower()} " if "LETTER" in name else " "


@lru_cache(maxsize=4096)
def _read(character: str) -> str:
    if " " <= character <= "~" or character in _KEPT:
        return character
    if character in _WORDS:
        return _WORDS[character]
    kind = unicodedata.category(character)
    if kind == "Cf":  # joiners, marks of direction, byte order: nothing to see
        return ""
    if kind == "Nd":
        return str(unicodedata.decimal(character))
    return _latin(character)


def _latin(character: str) -> str:
    """A letter with its accent, a compatible form of ASCII ("①", "Ａ", "½", "…"), or a blank."""
    whole = unicodedata.normalize("NFKC", character)
    if whole != character:
        return "".join(map(_read, whole))
    if not unicodedata.name(character, "").startswith("LATIN "):
        return " "
    parts = unicodedata.normalize("NFD", character)
    return parts[0] if _DIAERESIS in parts else character
