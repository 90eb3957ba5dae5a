"""Street addresses: "20 W 5th St" is twenty West fifth Street, neither watts nor a saint."""

import re

from python_backends.spoken.rules import Rules, any_of

_DIRECTIONS = {
    "N": "North",
    "S": "South",
    "E": "East",
    "W": "West",
    "NE": "Northeast",
    "NW": "Northwest",
    "SE": "Southeast",
    "SW": "Southwest",
}
_KINDS = {
    "St": "Street",
    "Ave": "Avenue",
    "Blvd": "Boulevard",
    "Rd": "Road",
    "Dr": "Drive",
    "Ln": "Lane",
    "Ct": "Court",
    "Pl": "Place",
    "Hwy": "Highway",
    "Pkwy": "Parkway",
    "Sq": "Square",
}
_ORDINAL = r"\d{1,3}(?:st|nd|rd|th)"
_NAME = r"[A-Z][a-z']{1,20}(?: [A-Z][a-z']{1,20}){0,2}"
_HOUSE = r"(?<![\w.,$£€/-])\d{1,5}[A-Za-z]? "
_WAY = rf"(?:(?<![.'\u2019])({any_of(_DIRECTIONS)})\.? )?"
_KIND = rf" ({any_of(_KINDS)})\b(?:\.(?= ?[a-z,;:)]))?"
_NO_NAME_FOLLOWS = r"(?!\.? (?:[A-Z]|pepper))"
"""Else it is a title: "the 1st St. Bernard", "2 Young Dr. Smith fans", "2 Large Dr peppers"."""


def _said(found: re.Match[str]) -> str:
    house, way, name, kind = found.groups()
    words = (house.strip(), way and _DIRECTIONS[way], name, _KINDS[kind])
    return " ".join(word for word in words if word)


say_streets = Rules(
    (
        (rf"({_HOUSE}){_WAY}({_ORDINAL}){_KIND}", _said),
        (rf"({_HOUSE}){_WAY}({_NAME}){_KIND}{_NO_NAME_FOLLOWS}", _said),
        # Without a house: on 5th Ave (but "my 2nd Dr. visit")
        (rf"(\b){_WAY}\b({_ORDINAL})(?! Dr\b){_KIND}{_NO_NAME_FOLLOWS}", _said),
        # Watts are not counted off: 20 W 5th
        (rf"(?<=\d )W\.? (?={_ORDINAL}\b)", "West "),
    )
)
