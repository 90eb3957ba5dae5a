"""The text an ordering turn is prompted with; trainer and server share this one function."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from python_backends.errors import InvalidInput

SYSTEM = "You are a drive-through order taker. Reply in one or two short sentences."
MAX_PROMPT_TOKENS = 384
"""Room for the prompt in the LLM's 512-token slot; the rest is the answer's."""


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
        lines = [Utterance(row["role"], row["text"]) for row in _list(json.loads(history))]
    except (ValueError, TypeError, KeyError, RecursionError) as fault:
        raise InvalidInput(
            'HISTORY is not a JSON list of {"role": ..., "text": ...} objects'
        ) from fault
    for line in lines:
        if line.role not in ("user", "assistant"):
            raise InvalidInput(f"HISTORY role {line.role!r:.80} is neither 'user' nor 'assistant'")
        if not isinstance(line.text, str):
            raise InvalidInput("HISTORY text is not a string")
    return lines


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _block(role: str, text: str) -> str:
    """One line of ChatML; control tokens written out in `text` are broken up, so they stay text."""
    spoken = text.replace("<|", "< |")
    return f"<|im_start|>{role}\n{spoken}<|im_end|>\n"


def prompt_text(history: Sequence[Utterance], heard: str) -> str:
    """ChatML: system, the history, what was heard, and the opening of the answer."""
    lines = [_block("system", SYSTEM)]
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
    tokens = encode(prompt_text([], heard))
    if len(tokens) > limit:
        raise InvalidInput(f"the utterance needs {len(tokens)} tokens; at most {limit} fit")
    for start in reversed(_exchange_starts(history)):
        longer = encode(prompt_text(history[start:], heard))
        if len(longer) > limit:
            break
        tokens = longer
    return tokens


def _exchange_starts(history: Sequence[Utterance]) -> list[int]:
    """Where the exchanges begin: at the first line, and at every line of the user's."""
    return [at for at, line in enumerate(history) if at == 0 or line.role == "user"]
