"""Values of a plan that YAML has several ways to write."""

import re

UNITS = {
    "": 1,
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def byte_count(given: object) -> int:
    """Bytes of 1048576, "512MiB" or "1.5 GiB". ValueError says what is accepted."""
    found = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    if found is None or found[2] not in UNITS:
        units = ", ".join(unit for unit in UNITS if unit)
        raise ValueError(f"a size is a number with one of {units}")
    return int(float(found[1]) * UNITS[found[2]])


def told_bytes(count: float) -> str:
    """A size for a person: "1.5 GiB"."""
    for unit in ("GiB", "MiB", "KiB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.3g} {unit}"
    return f"{count:.0f} B"


def scalar_text(given: object) -> str:
    """How a config.pbtxt or an environment variable says a YAML scalar: true is "true"."""
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, str | int | float):
        return str(given)
    raise ValueError("a value is text, a number, true or false")
