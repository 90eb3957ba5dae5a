"""Numbers whose form hibari does not know: codes, addresses, versions, foreign dates and amounts.

Patterns look for digits on either side where a longer number must not be cut.
"""

import re

from python_backends.spoken.rules import Rules


def _day_first(found: re.Match[str]) -> str:
    day, month, year = found.groups()
    return f"{year}-{month:0>2}-{day:0>2}" if int(month) <= 12 else found.group()


def _dotted(found: re.Match[str]) -> str:
    """10.000.000 is an amount, 10.0.0.1 an address, 2.0.1 a version."""
    first, *rest = parts = found.group().split(".")
    if all(len(part) == 3 for part in rest) and len(first) <= 3 != len(rest):
        return ",".join(parts)
    if len(parts) == 4 and all(len(part) <= 3 for part in parts):
        return " dot ".join(map(" ".join, parts))
    return " point ".join(parts)


def _comma_decimal(found: re.Match[str]) -> str:
    whole, cents = found.groups()
    return f"{whole.replace('.', ',')}.{cents}"


def _one_by_one(found: re.Match[str]) -> str:
    return " ".join(found.group().replace(",", ""))


def _in_groups(found: re.Match[str]) -> str:
    return ", ".join(map(" ".join, re.split(r"[ -]", found.group())))


def _power(found: re.Match[str]) -> str:
    number, sign, exponent = found.groups()
    return f"{number} times 10 to the {'minus ' if sign == '-' else ''}{exponent}"


say_numbers = Rules(
    (
        # 2026-11-29T15:30:00Z, 2026/11/29, 29.11.2026
        (
            r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\b",
            r"\1, \2",
        ),
        (r"\b(\d{4})/(\d\d)/(\d\d)\b", r"\1-\2-\3"),
        (r"(?<![\w.])(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\.?\d)", _day_first),
        # 1.234,56; v2.0.1; 192.168.1.1; 10.000.000
        (r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+),(\d{1,2})(?!\d)", _comma_decimal),
        (r"\bv(?=\d+\.\d)", "version "),
        (r"(?<![\d.])\d+(?:\.\d+){2,}(?!\d)", _dotted),
        # 1,2,3 is a list, 3,5 a decimal
        (r"(?<![\d,])\d{1,2}(?:,\d{1,2}){2,}(?![\d,])", lambda m: m[0].replace(",", ", ")),
        (r"(?<![\d,.])(\d+),(\d{1,2})(?![\d,])", r"\1.\2"),
        # 1 000 000, 10 000
        (
            r"(?<![\d.,])\d{1,3}(?:(?: \d{3}){2,}|(?: 000))(?! ?\d)",
            lambda m: m[0].replace(" ", ""),
        ),
        # Codes: 007, and what is too long to be an amount (hibari fails above 36 digits)
        (r"(?<![\d.,:/-])(?:0\d+|\d{10,})(?![\d.,:/]\d)|\d{37,}", _one_by_one),
        (r"\d{1,3}(?:,\d{3}){12,}", _one_by_one),
        (
            r"(?<![\d-])(?:\d{4}(?: \d{4}){2,}|\d+(?:-\d+){3,}|\d{3,}(?:-\d{4}){2,})(?![\d-])",
            _in_groups,
        ),
        (r"(?:(?<=\b[Cc]all )|(?<=\b[Dd]ial ))\d{3}\b", _one_by_one),
        (r"(\d(?:\.\d+)?)e([-+]?)(\d+)\b", _power),
    )
)
