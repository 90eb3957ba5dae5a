"""The two functions of protobuf's text format that this project uses (protobuf ships no types)."""

from typing import Any, TypeVar

M = TypeVar("M")

class ParseError(Exception): ...

def Parse(text: str | bytes, message: M) -> M: ...
def MessageToString(message: Any) -> str: ...
