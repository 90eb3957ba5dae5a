"""The held-out conversations as a page to read: out/orders.html."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from build import pages

Row = Mapping[str, Any]
"""A turn, as `evaluate.judge` has it."""

_STYLE: Final = (
    "table{border-collapse:collapse;width:100%}td,th{padding:.35em .7em;text-align:left;"
    "vertical-align:top;border-bottom:1px solid #ddd;width:33%}"
    ".right{background:#e8f5e9}.wrong{background:#fdecea}.good{color:#a33}"
)


def write_page(path: Path, found: Mapping[str, Any]) -> None:
    """What `evaluate.evaluate_orders` found."""
    pages.write_page(path, "Taking orders", body(found), style=_STYLE)


def body(found: Mapping[str, Any]) -> str:
    """Every conversation: what was said to it, and what the model answers with the adapters and
    without; what is wrong has beside it what a good answer is."""
    parts = [
        f"<p>Ten conversations that training has never seen: {found['right']} of {found['turns']} ",
        f"turns right with the ordering LoRA, {found['right_without']} without it. Ten more, by ",
        "an author who had not seen the training's templates: ",
        f"{found['right_again']} of {found['turns_again']}. ",
        "A turn is right when its words are and the running order changes as it should.</p>",
    ]
    both = zip(found["held_out"], found["held_out_without"], strict=True)
    for number, (own, plain) in enumerate(both, start=1):
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
    return f"<h2>{title}</h2><table>{''.join(rows)}</table><p><small>{order}: {verdict}</small></p>"


def _answer(row: Row) -> str:
    good = html.escape(row.get("good", ""))
    better = f'<br><span class="good">should be: {good}</span>' if good else ""
    kind = "right" if row["right"] else "wrong"
    return f'<td class="{kind}">{html.escape(row["answer"])}{better}</td>'
