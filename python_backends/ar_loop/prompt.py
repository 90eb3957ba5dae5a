"""The text an ordering turn is prompted with; trainer and server share this one function.

The system text holds the menu with its prices. Every line of the customer's begins with the order
that was confirmed before it, and its total, as `orders.py` reads them from the replies: the model
can read them back and need not add up. A line's order depends on what came before it alone, so a
turn's prompt begins with the whole prompt of the turn before, and its KV cache is reused.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from python_backends.ar_loop.menu import menu_text
from python_backends.ar_loop.orders import MOST_REPLIES, Order
from python_backends.errors import InvalidInput

T = TypeVar("T")
SYSTEM = (
    "You are a drive-through order taker. Reply in one or two short sentences. "
    f"Sell only what is on the menu.\n{menu_text()}"
)
MAX_PROMPT_TOKENS = 640
"""Room for the prompt in the LLM's 768-token slot; the rest is the answer's. The system text takes
270, an exchange 60 to 80."""

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


def _heard_block(order: Order, heard: str) -> str:
    """A line of the customer's behind the order so far; nobody else writes in square brackets."""
    return _block("user", f"{order.line}\n{heard.replace('[', '(')}")


def system_text() -> str:
    """What every prompt begins with."""
    return _block("system", SYSTEM)


def prompt_text(history: Sequence[Utterance], heard: str) -> str:
    """ChatML: system, the history, what was heard, and the opening of the answer."""
    return _joined(*_blocks(history, heard))


def _blocks(history: Sequence[Utterance], heard: str) -> tuple[list[str], str]:
    """A block for each line of the history, and that of what was heard."""
    order, blocks = Order(), []
    oldest_read = len(history) - 2 * MOST_REPLIES
    for at, line in enumerate(history):
        if line.role == "user":
            blocks.append(_heard_block(order, line.text))
        else:
            blocks.append(_block(line.role, line.text))
            order = order.after(line.text) if at >= oldest_read else order
    return blocks, _heard_block(order, heard)


def _joined(blocks: Sequence[str], heard: str) -> str:
    return "".join([system_text(), *blocks, heard, "<|im_start|>assistant\n"])


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
    blocks, last = _blocks(history, heard)
    tokens = encode(_joined([], last))
    if len(tokens) > limit:
        raise InvalidInput(f"the utterance needs {len(tokens)} tokens; at most {limit} fit")
    for start in reversed(_exchange_starts(history)):
        text = _joined(blocks[start:], last)
        if len(text) > most or len(longer := encode(text)) > limit:
            break
        tokens = longer
    return tokens


def _exchange_starts(history: Sequence[Utterance]) -> list[int]:
    """Where the exchanges begin: at the first line, and at every line of the user's."""
    return [at for at, line in enumerate(history) if at == 0 or line.role == "user"]
