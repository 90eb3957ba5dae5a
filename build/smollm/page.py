"""The held-out conversations as a page to read: out/orders.html."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from build.fetch import replacing

Row = Mapping[str, Any]
"""A turn, as `evaluate.judge` has it."""

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1200px;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.35em .7em;text-align:left;"
    "vertical-align:top;border-bottom:1px solid #ddd;width:33%}"
    ".right{background:#e8f5e9}.wrong{background:#fdecea}.order{color:#666;font-size:.9em}"
    "h2{font-size:1.05em;margin:2em 0 .4em}del{text-decoration:none;color:#a33}"
)


def write_page(path: Path, found: Mapping[str, Any]) -> None:
    """What `evaluate.evaluate_orders` found."""
    with replacing(path) as partial:
        partial.write_text(page(found), encoding="utf-8")


def page(found: Mapping[str, Any]) -> str:
    """Every conversation: what was said to it, and what the model answers with the adapters and
    without; what is wrong has beside it what a good answer is."""
    turns = found["turns"]
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Taking orders</title>',
        f"<style>{_STYLE}</style><h1>Taking orders</h1>",
        f"<p>Ten conversations that training has never seen: {found['right']} of {turns} turns ",
        f"right with the ordering LoRA, {found['right_without']} without it. Ten more, by an ",
        f"author who had not seen the training's templates: {found['right_again']} of {turns}. ",
        "A turn is right when its words are and the running order changes as it should.</p>",
    ]
    pairs = zip(found["held_out"], found["held_out_without"], strict=True)
    for number, (own, plain) in enumerate(pairs, start=1):
        parts.append(_conversation(f"Conversation {number}", own, plain))
    for number, own in enumerate(found["held_out_again"], start=1):
        parts.append(_conversation(f"Second set, conversation {number}", own, None))
    return "".join(parts)


def _conversation(title: str, own: Sequence[Row], plain: Sequence[Row] | None) -> str:
    heads = ["customer", "with the LoRA", *(["without"] if plain else [])]
    rows = [f"<tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"]
    for at, row in enumerate(own):
        other = _answer(plain[at]) if plain else ""
        rows.append(f"<tr><td>{html.escape(row['heard'])}</td>{_answer(row)}{other}</tr>")
    order = html.escape(own[-1]["final_order"])
    verdict = "as it should be" if own[-1]["final_order_right"] else "not what was ordered"
    return f'<h2>{title}</h2><table>{"".join(rows)}</table><p class="order">{order}: {verdict}</p>'


def _answer(row: Row) -> str:
    good = "" if row["right"] else f"<br><del>should be: {html.escape(row['good'])}</del>"
    kind = "right" if row["right"] else "wrong"
    return f'<td class="{kind}">{html.escape(row["answer"])}{good}</td>'
