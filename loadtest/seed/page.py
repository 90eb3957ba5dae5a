"""The summary as a table, in front of the pictures of the comparison."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_MARKS = {True: "met", False: "NOT MET"}


def with_summary(page: str, result: Mapping[str, Any]) -> str:
    """`page` (HTML of loadtest.ledger.compare) with the figures and the remedies at its top."""
    head, heading, rest = page.partition("</h1>")
    return f"{head}{heading}\n{_figures(result)}\n{_remedies(result)}\n{rest}"


def _figures(result: Mapping[str, Any]) -> str:
    rows = [_figure(result, name, value) for name, value in result["summary"].items()]
    return _table("What was asked and found", ("figure", "found", "asked", ""), rows)


def _figure(result: Mapping[str, Any], name: str, value: float | None) -> tuple[str, ...]:
    found = "none" if value is None else f"{value:.4g}"
    return name, found, result["targets"].get(name, ""), _met(result, name)


def _met(result: Mapping[str, Any], name: str) -> str:
    return _MARKS[result["met"][name]] if name in result["met"] else ""


def _remedies(result: Mapping[str, Any]) -> str:
    rows = [
        (one["remedy"], one["seed_says"], one["found"], "agrees" if one["agrees"] else "does not")
        for one in result["remedies"]
    ]
    columns = ("remedy", "what the seed says happens", "what happened", "")
    return _table("Three usual remedies, on the seed's 40 %", columns, rows) if rows else ""


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f'<th class="text">{escape(column)}</th>' for column in columns)
    body = "\n".join(_row(row) for row in rows)
    return f"<h2>{escape(title)}</h2>\n<table><tr>{head}</tr>\n{body}\n</table>"


def _row(cells: tuple[str, ...]) -> str:
    inner = "".join(f'<td class="text">{escape(cell)}</td>' for cell in cells)
    return f"<tr>{inner}</tr>"
