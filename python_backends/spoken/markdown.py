"""Markdown to the text it shows, by markdown-it (CommonMark, tables, strike-through)."""

import re
from collections.abc import Iterable, Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

_RUN = re.compile(r"([^\w\s])\1{3,}")
MOST_BRACKETS = 100
"""Of more, none is a link: markdown-it looks for the partner of each in all that follows."""

_MULTIPLIED = re.compile(r"(?<=\d)\*(?=\d)")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_LEFT_OF_A_LINK = re.compile(r"\]\([^()\s]*\)")
_LEFT_OVER = re.compile(r"`+|\*{2,}|~~|(?<!\w)__+|__+(?!\w)|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")
"""Marks without a partner: a piece of an answer may end inside of them."""

_TASK = re.compile(r"^\[[ xX]\] ")
_ENDED = tuple(".!?,;:")


def _reader() -> MarkdownIt:
    """Indented code and blocks of HTML are text here: callers indent, and LLMs write <b>."""
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return reader.disable(["code", "html_block"])


_READER = _reader()


def plain(written: str) -> str:
    """The text without its markup; blocks become sentences, and code blocks are left out."""
    source = _MULTIPLIED.sub(" times ", _RUN.sub(r"\1\1\1", written))
    if source.count("[") > MOST_BRACKETS:
        source = re.sub(r"!?[\[\]]", " ", source)
    if len(_FENCE.findall(source)) % 2:  # the other end is in another piece: which side is code?
        source = _FENCE.sub("", source)
    blocks = [block for block in _blocks(_READER.parse(source)) if block]
    return _LEFT_OVER.sub("", _LEFT_OF_A_LINK.sub("", _joined(blocks)))


def _blocks(tokens: Iterable[Token]) -> Iterator[str]:
    """Paragraphs, headings, items and rows; numbers of a list are said, its bullets are not."""
    number, row = "", None
    for token in tokens:
        match token.type:
            case "list_item_open":
                number = token.info and f"{token.info}. "
            case "tr_open":
                row = list[str]()
            case "tr_close":
                yield ", ".join(row or ())
                row = None
            case "inline":
                shown = number + _TASK.sub("", "".join(_shown(token.children or ())).strip())
                number = ""
                if row is None:
                    yield shown
                else:
                    row.append(shown)


def _shown(tokens: Iterable[Token]) -> Iterator[str]:
    for token in tokens:
        match token.type:
            case "text" | "code_inline" | "text_special" | "image":
                yield token.content
            case "softbreak" | "hardbreak":
                yield "\n"
            case "html_inline" if token.content.startswith("<br"):
                yield "\n"


def _joined(blocks: list[str]) -> str:
    """One text, with a full stop where a block ends without a mark and another one follows."""
    ended = [one if one.endswith(_ENDED) else f"{one}." for one in blocks[:-1]]
    return "\n".join([*ended, *blocks[-1:]])
