"""The text an ordering turn is prompted with; trainer and server share this one function."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from python_backends.errors import InvalidInput

T = TypeVar("T")
SYSTEM = "You are a drive-through order taker. Reply in one or two short sentences."
MAX_PROMPT_TOKENS = 384
"""Room for the prompt in the LLM's 512-token slot; the rest is the answer's."""

LONGEST_TOKEN = 81
"""Characters of the longest token of SmolLM2's vocabulary: what is longer than that many times the
limit cannot fit, and is not encoded, which takes 0.4 s a megabyte."""


@dataclass(frozen=True)
class Utterance:
    """One line of a conversation."""

    role: str
    text: str


def parse_history(history: str) -> list[Utterance]:
    """HISTORY: a JSON list of {"role": "user" | "assistant", "text": str}, oldest first."""
    if not history.strip():
        return []
    try:
        lines = [_utterance(row) for row in _typed(json.loads(history), list)]
    except (ValueError, TypeError, KeyError, RecursionError) as fault:
        raise InvalidInput(
            'HISTORY is not a JSON list of {"role": ..., "text": ...} objects'
        ) from fault
    for line in lines:
        if line.role not in ("user", "assistant"):
            raise InvalidInput(f"HISTORY role {line.role!r:.80} is neither 'user' nor 'assistant'")
    return lines


def _utterance(row: Any) -> Utterance:
    role, text = _typed(row["role"], str), _typed(row["text"], str)
    text.encode()  # JSON can hold half a surrogate pair, which no tokenizer takes
    return Utterance(role, text)


def _typed(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"not a {kind.__name__}")
    return value


def _block(role: str, text: str) -> str:
    """One line of ChatML; control tokens written out in `text` are broken up, so they stay text."""
    spoken = text.replace("<|", "< |")
    return f"<|im_start|>{role}\n{spoken}<|im_end|>\n"


def system_text() -> str:
    """What every prompt begins with."""
    return _block("system", SYSTEM)


def prompt_text(history: Sequence[Utterance], heard: str) -> str:
    """ChatML: system, the history, what was heard, and the opening of the answer."""
    lines = [system_text()]
    lines += [_block(line.role, line.text) for line in history]
    lines += [_block("user", heard), "<|im_start|>assistant\n"]
    return "".join(lines)


def prompt_tokens(
    history: Sequence[Utterance],
    heard: str,
    encode: Callable[[str], list[int]],
    *,
    limit: int = MAX_PROMPT_TOKENS,
) -> list[int]:
    """Token ids of the prompt; whole exchanges are dropped from the oldest end until `limit` holds.

    `encode` turns text into ids, special tokens included. Raises InvalidInput when what was heard
    does not fit even without any history. The newest exchanges are tried first, so that the work
    does not grow with the length of what is dropped.
    """
    most = LONGEST_TOKEN * limit
    if len(heard) > most:
        raise InvalidInput(f"the utterance has {len(heard)} characters; at most {most} can fit")
    tokens = encode(prompt_text([], heard))
    if len(tokens) > limit:
        raise InvalidInput(f"the utterance needs {len(tokens)} tokens; at most {limit} fit")
    for start in reversed(_exchange_starts(history)):
        text = prompt_text(history[start:], heard)
        if len(text) > most or len(longer := encode(text)) > limit:
            break
        tokens = longer
    return tokens


def _exchange_starts(history: Sequence[Utterance]) -> list[int]:
    """Where the exchanges begin: at the first line, and at every line of the user's."""
    return [at for at, line in enumerate(history) if at == 0 or line.role == "user"]
