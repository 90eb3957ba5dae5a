"""JSON objects to frozen dataclasses and back: unknown and missing keys are named."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_json(kind: type[T], values: Any, where: str) -> T:
    """A dataclass of numbers, strings, tuples, mappings and dataclasses. ValueError says what is
    wrong, and where."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} is {values!r:.80}, not an object")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    needed = {
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING
    }
    unknown, missing = sorted(set(values) - set(known)), sorted(needed - set(values))
    if unknown or missing:
        raise ValueError(
            f"{where}: unknown {unknown}, missing {missing}; known: {', '.join(sorted(known))}"
        )
    hints = get_type_hints(kind)
    return kind(
        **{key: _read(hints[key], value, f"{where}.{key}") for key, value in values.items()}
    )


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return from_json(kind, value, where)  # type: ignore[arg-type]
    if origin is tuple:
        return tuple(_read(inner[0], one, where) for one in _typed(list, value, where))
    if origin is not None:
        entries = _typed(dict, value, where).items()
        return {key: _read(inner[1], one, f"{where}.{key}") for key, one in entries}
    if kind is float:
        return float(_number(value, where))
    return _typed(kind, value, where)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where} is {value!r:.80}, not a number")
    return value


def _typed(kind: type[T], value: Any, where: str) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{where} is {value!r:.80}, not a {kind.__name__}")
    return value
