"""Tokens of the LLM's own tokenizer become text piece by piece, as they do all at once."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from python_backends.ar_loop.text import Detokenizer

TOKENIZER = Path(__file__).parents[2] / "model_repository" / "think" / "1" / "tokenizer.json"
LINES = [
    "👍你好삼겹살",
    "Great 👍 你好!",
    "Café — naïve 👩\u200d👩\u200d👧 end",
    " two  blanks ",
    "plain",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER))


def tokens_of(tokenizer: Tokenizer, line: str) -> list[int]:
    return list(tokenizer.encode(line, add_special_tokens=False).ids)


def streamed(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    text = Detokenizer(lambda some: str(tokenizer.decode(some, skip_special_tokens=True)))
    return [*map(text.add, ids), text.rest()]


@pytest.mark.parametrize("line", LINES)
def test_no_piece_has_half_a_character(tokenizer: Tokenizer, line: str) -> None:
    """Public case G7."""
    parts = streamed(tokenizer, tokens_of(tokenizer, line))
    assert "".join(parts) == line
    assert not any("\ufffd" in part for part in parts)


def test_a_character_cut_off_by_the_limit_ends_as_decoding_all_at_once_ends(
    tokenizer: Tokenizer,
) -> None:
    ids = tokens_of(tokenizer, "Great 👍")[:-1]
    *parts, rest = streamed(tokenizer, ids)
    assert "".join(parts) == "Great "
    assert "".join(parts) + rest == tokenizer.decode(ids)


@pytest.mark.parametrize("seed", range(30))
def test_any_tokens_stream_to_what_decoding_them_at_once_gives(
    tokenizer: Tokenizer, seed: int
) -> None:
    """Half of the ids are of broken characters or control tokens."""
    draw = random.Random(seed)
    odd = [*range(20), *tokens_of(tokenizer, "👍你好삼겹살é")]
    whole = tokenizer.get_vocab_size()
    ids = [draw.choice([draw.randrange(whole), draw.choice(odd)]) for _ in range(150)]
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids, skip_special_tokens=True)
