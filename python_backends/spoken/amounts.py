"""Money, units, ranges and formulas as hibari does not know them."""

import re

from python_backends.spoken.rules import NUMBER, Rules, any_of
from python_backends.spoken.tables import (
    COMPARED,
    COUNTRIES,
    CURRENCIES,
    LARGE,
    MONTHS,
    PERIODS,
    UNITS,
)


def _foreign_dollars(found: re.Match[str]) -> str:
    country, number, large = found.groups()
    return f"{number}{large or ''} {COUNTRIES[country]} dollars"


def _with_unit(found: re.Match[str]) -> str:
    number, unit = found.groups()
    return f"{number} {UNITS[unit][number != '1']}"


def _money_range(found: re.Match[str]) -> str:
    """A dash between spaces leads up in a range, and down where something is taken away."""
    low, high = (float(number.replace(",", "")) for number in (found[2], found[4]))
    return f"{found[1]}{found[2]}{found[3]} to " if low < high else found[0]


_SIGNS = "".join(CURRENCIES)
_SAME_UNIT_TWICE = (
    r"(\d\s?((?![xyz]\b)(?:%|[A-Za-z]{1,12}[²³]?)))\s?-\s?"
    rf"(?={NUMBER}\s?\2(?![\w²³/]|[^.!?]{{0,20}}=))"
)
"""10% - 20%, 5 kg - 10 kg: a dash between equal units is a range, unless it is in a formula."""

_LARGE_WORD = r"\s(?:thousand|million|billion|trillion)"

say_amounts = Rules(
    (
        # Money: €2bn, US$5, 5 €, ₽5, $5 - $10 (but $10 - $5), -$5, $5-$10
        (rf"([$£€]{NUMBER})\s?bn\b", r"\1 billion"),
        (rf"\b({any_of(COUNTRIES)})\$\s?({NUMBER})({_LARGE_WORD})?", _foreign_dollars),
        (rf"(?<![\w$£€.,])({NUMBER})\s?([$£€¥₹₩])(?!\d)", r"\2\1"),
        (rf"([{_SIGNS}])\s?({NUMBER})", lambda m: f"{m[2]} {CURRENCIES[m[1]]}"),
        (rf"({NUMBER})\s?([{_SIGNS}])", lambda m: f"{m[1]} {CURRENCIES[m[2]]}"),
        (
            rf"([$£€])({NUMBER})([kKmMB]?) - (?=\1({NUMBER})\3(?![\w.,]*\w|[^.!?]{{0,20}}=))",
            _money_range,
        ),
        (r"(?<!\w)-\s?(?=[$£€]\d)", "minus "),
        (r"(?<=[\dkKmMB])\s?-\s?(?=[$£€]\d)", " to "),
        (rf"([$£€])({NUMBER})\s?-\s?(?=\d)", r"\2 to \1"),
        # Hours: "am" without dots is the verb to hibari; one before a full stop it knows
        (r"(?<=\d)\s?([aApP])[mM]\b(?!\.)", lambda m: f" {m[1].upper()}.M."),
        (r"(?<![\w.-])(\d{1,2})\s?-\s?(?=\d{1,2}(?::\d\d)?\s?[AaPp]\.?[Mm])", r"\1 to "),
        (r"(\d:\d\d(?:\s?[AaPp]\.?[Mm]\.?)?|\d [AP]\.M\.)\s?-\s?(?=\d)", r"\1 to "),
        # Ranges: 20°C-25°C, Jan. 5-7, 5-10%, 1.5-2.5, 10% - 20%, 5-10 before a full stop, 3:1, ~5
        (r"(°[CF]?)\s?-\s?(?=\d)", r"\1 to "),
        (rf"\b({any_of(MONTHS)})(\.? \d{{1,2}})\s?-\s?(?=\d{{1,2}}\b)", r"\1\2 to "),
        (r"(?<![\w.-])(\d+(?:\.\d+)?%?)-(?=\d+(?:\.\d+)?%)", r"\1 to "),
        (r"(?<![\w.-])(\d+\.\d+)\s?-\s?(?=\d)(?![\d.]*-)", r"\1 to "),
        (_SAME_UNIT_TWICE, r"\1 to "),
        (r"(?<![\w.-])(\d{1,4})-(?=\d{1,4}\.(?:\s|$))", r"\1 to "),
        (r"(?<![\d:])(\d{1,2}):(?=\d(?![\d:]))", r"\1 to "),
        (r"(?<!\S)~\s?(?=[$£€]?\d)", "about "),
        # Formulas: 5 * 3, 3 x 4 =, 3x4, 2x faster (but 2x fries), (x12), 2+2, 10 - 3 =, 6 ÷ 2
        (r"(?<=\d)\s?[*\u00d7]\s?(?=\d)", " times "),
        (r"(?<!\b0)(?<=\d)\s?x\s?(?=\d+(?:\.\d+)?\s?=)", " times "),
        (r"(?<!\b0)(?<=\d)\s?x\s?(?=\d)", " by "),
        (rf"(?<=\d)x(?= (?:{any_of(COMPARED)})\b)", " times"),
        (r"(?<=\d)x(?= [a-z])", ""),
        (r"(?<=\d)x\b", " times"),
        (r"(?<=\()x(?=\d+\))", "times "),
        (r"(?<=\d)\s?\+\s?(?=\d)", " plus "),
        (r"(?<=\d)\s-\s(?=[\d.]+[^.!?]{0,99}=)|(?<=\d)-(?=\d+\s?=)", " minus "),
        (r"(?<=\d)\s-\s(?=\d)", " to "),
        (r"(?<=\d)\s?÷\s?(?=\d)|(?<=\d)\s/\s(?=\d)", " divided by "),
        # Fractions and sizes: 24/7, 10/10, 2/3rds, 2 1/2, 6'2"
        (r"\b(?:24/7|50/50)\b", lambda m: m[0].replace("/", " ")),
        (r"(?<![\d/])(\d+)/(?=\1(?![\d/]))", r"\1 out of "),
        (r"(?<=\d)(/\d{1,2})(?:rds?|ths?)\b", r"\1"),
        (r"(?<![\d/.])(\d+)\s+(?=\d/\d{1,2}(?![\d/]))", r"\1 and "),
        (r"(\d)'\s?(\d{1,2})(?:\"|\u2033|'')", r"\1 foot \2"),
        # Units: $5/mo, 10k (but 4K is a screen, and 12B a door), 5 ft. 3 in., 9.58s, 5 m
        (rf"(?<=\d)/({any_of(PERIODS)})\b", lambda m: f" per {PERIODS[m[1]]}"),
        (
            rf"(?<![\w.$£€-])({NUMBER})"
            r"([kK]|bn|[MB](?:(?<=\.\d[MB])|(?= (?:[a-z]{3,}s|model)\b)))\b(?<!\b4K)(?<!\b8K)",
            lambda m: f"{m[1]} {LARGE[m[2]]}",
        ),
        (r"(\bft\.? \d+) ?in\b\.?", r"\1 inches"),
        (r"(\d ?(?:ft|lbs?|oz|hrs?|mins?|secs?|mi|yd))\.(?= [a-z]| \d+ inches)", r"\1"),
        (r"(?<=\d )s\b|(?<=\.\d)s\b|(?<=\.\d\d)s\b", " seconds"),
        (rf"(?<![\w.,$£€])({NUMBER})\s?({any_of(UNITS)})(?![\w'²³/])", _with_unit),
    )
)
