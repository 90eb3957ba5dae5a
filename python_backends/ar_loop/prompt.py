"""The text an ordering turn is prompted with; the trainer and the server share this one function."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """The HISTORY tensor: a JSON list of {"role": "user" | "assistant", "text": str}, oldest first."""
    if not history.strip():
        return []
    try:
        rows = json.loads(history)
        lines = [Utterance(str(row["role"]), str(row["text"])) for row in rows]
    except (ValueError, TypeError, KeyError) as fault:
        raise InvalidInput(
            'HISTORY is not a JSON list of {"role": ..., "text": ...} objects'
        ) from fault
    for line in lines:
        if line.role not in ("user", "assistant"):
            raise InvalidInput(f"HISTORY role {line.role!r} is neither 'user' nor 'assistant'")
    return lines


def _block(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


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
    """Token ids of the prompt; whole exchanges are dropped from the oldest end until it fits `limit`.

    `encode` turns text into ids, special tokens included. Raises InvalidInput when what was heard
    does not fit even without any history.
    """
    kept = list(history)
    while True:
        tokens = encode(prompt_text(kept, heard))
        if len(tokens) <= limit:
            return tokens
        if not kept:
            raise InvalidInput(f"the utterance needs {len(tokens)} tokens; at most {limit} fit")
        dropped = 1
        while dropped < len(kept) and kept[dropped].role != "user":
            dropped += 1
        kept = kept[dropped:]
