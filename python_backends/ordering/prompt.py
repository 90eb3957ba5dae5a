"""The text an ordering turn is prompted with; trainer and server share this one function.

The system text holds the menu with its prices. Every line of the customer's begins with the order
that was confirmed before it, and its total, as `order.py` reads them from the replies: the model
can read them back and need not add up. A line's order depends on what came before it alone, so a
turn's prompt begins with the whole prompt of the turn before, and its KV cache is reused.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from python_backends.errors import InvalidInput
from python_backends.ordering.menu import menu_text
from python_backends.ordering.order import Order, orders_before

T = TypeVar("T")
SYSTEM = (
    "You are a drive-through order taker. Reply in one or two short sentences. "
    f"Sell only what is on the menu.\n{menu_text()}"
)
MAX_PROMPT_TOKENS = 640
"""Room for the prompt in the LLM's 768-token slot; the rest is the answer's. The system text takes
261, an exchange 30 to 70: about six exchanges are kept whole."""

LONGEST_HISTORY = 256_000
"""Characters of HISTORY: some 2,000 exchanges. The order is read from all of them, which takes 1 ms
for each 1,000 characters of confirmations."""

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
    if len(history) > LONGEST_HISTORY:
        raise InvalidInput(
            f"HISTORY has {len(history)} characters; at most {LONGEST_HISTORY} are accepted"
        )
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


def _block(role: str, text: str, order: str = "") -> str:
    """One line of ChatML, behind the order where there is one.

    Control tokens written out in `text` are broken up, so they stay text, and nobody but the order
    stands in square brackets.
    """
    said = text.replace("<|", "< |").replace("[", "(")
    return f"<|im_start|>{role}\n{order}{said}<|im_end|>\n"


def system_text() -> str:
    """What every prompt begins with."""
    return _block("system", SYSTEM)


def prompt_text(history: Sequence[Utterance], heard: str) -> str:
    """ChatML: system, the history, what was heard, and the opening of the answer."""
    return _Lines(history, heard).text(0)


class _Lines:
    """The lines of a prompt, each with the order before it; text is made of those that are tried.

    A line's order depends on what came before it alone, dropped or not.
    """

    def __init__(self, history: Sequence[Utterance], heard: str) -> None:
        said = [*history, Utterance("user", heard)]
        orders = orders_before((line.role, line.text) for line in said)
        self._lines = list(zip(said, orders, strict=False))

    def text(self, start: int) -> str:
        """The whole prompt with the history from line `start` on."""
        blocks = [self._text(line, order) for line, order in self._lines[start:]]
        return "".join([system_text(), *blocks, "<|im_start|>assistant\n"])

    def _text(self, line: Utterance, order: Order) -> str:
        own = f"{order.line}\n" if line.role == "user" else ""
        return _block(line.role, line.text, own)


def prompt_tokens(
    history: Sequence[Utterance],
    heard: str,
    encode: Callable[[str], list[int]],
    *,
    limit: int = MAX_PROMPT_TOKENS,
) -> list[int]:
    """Token ids of the prompt; whole exchanges are dropped from the oldest end until `limit` holds.

    `encode` turns text into ids, special tokens included. Raises InvalidInput when what was heard
    does not fit even without any history.
    """
    return newest_that_fit(history, heard, _Lines(history, heard).text, encode, limit=limit)


def newest_that_fit(
    history: Sequence[Utterance],
    heard: str,
    text_from: Callable[[int], str],
    encode: Callable[[str], list[int]],
    *,
    limit: int,
) -> list[int]:
    """Token ids of the longest of `text_from(start)`, the whole prompt with the history from line
    `start` on, that has at most `limit` of them and begins with an exchange.

    Raises InvalidInput when what was heard does not fit even without any history. The newest
    exchanges are tried first, so that the work does not grow with the length of what is dropped.
    """
    most = LONGEST_TOKEN * limit
    if len(heard) > most:
        raise InvalidInput(f"the utterance has {len(heard)} characters; at most {most} can fit")
    tokens = encode(text_from(len(history)))
    if len(tokens) > limit:
        own = len(encode(heard))
        left = max(0, limit - (len(tokens) - own))
        raise InvalidInput(f"the utterance needs {own} tokens; at most {left} fit")
    for start in reversed(_exchange_starts(history)):
        text = text_from(start)
        if len(text) > most or len(longer := encode(text)) > limit:
            break
        tokens = longer
    return tokens


def _exchange_starts(history: Sequence[Utterance]) -> list[int]:
    """Where the exchanges begin: at the first line, and at every line of the user's."""
    return [at for at, line in enumerate(history) if at == 0 or line.role == "user"]
