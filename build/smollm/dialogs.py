"""Seeded drive-through conversations: what the ordering LoRA is trained on.

Every line is our own template over the menu; nothing is copied from a data set. What is ordered at
any moment is read from the answers by the code that reads it in serving (`Order.after`). A dialog
that shares a sentence template, or an item with one of its changes, with the held-out
conversations is drawn again.
"""

import random
from collections.abc import Callable

from build.smollm import dialog_changes as changing
from build.smollm import dialog_orders as ordering
from build.smollm import dialog_questions as asking
from build.smollm.dialog import Dialog
from build.smollm.held_out import ABSENT as HELD_OUT_ABSENT
from build.smollm.held_out import COMBINATIONS, changed_items, templates
from build.smollm.lines import template_of
from build.smollm.wares import ABSENT

Exchange = Callable[[Dialog], None]
KNOWN_ABSENT = (*HELD_OUT_ABSENT, *ABSENT)
_HELD_OUT = templates(ABSENT)

ANY: tuple[tuple[Exchange, float], ...] = (
    (ordering.order, 0.28),
    (ordering.order_for_two, 0.06),
    (ordering.order_unsized, 0.13),
    (ordering.refuse, 0.13),
    (ordering.order_and_refuse, 0.07),
    (ordering.ask_whether_sold, 0.08),
    (ordering.ask_price, 0.06),
    (ordering.no_such_size, 0.015),
    (asking.ask_about_menu, 0.06),
    (asking.leave_domain, 0.08),
    (asking.ask_total, 0.02),
    (asking.read_back, 0.02),
    (asking.wait, 0.015),
    (asking.unclear, 0.015),
    (asking.pay, 0.01),
    (asking.pardon, 0.015),
)
AT_FIRST: tuple[tuple[Exchange, float], ...] = ((asking.greet, 0.2),)
WITH_ORDER: tuple[tuple[Exchange, float], ...] = (
    (changing.replace_last, 0.09),
    (changing.replace_named, 0.09),
    (changing.resize, 0.07),
    (changing.recount, 0.08),
    (changing.adjust, 0.09),
    (changing.remove, 0.10),
    (changing.remove_all, 0.01),
    (changing.change_and_add, 0.03),
    (changing.one_less, 0.03),
    (changing.one_more, 0.03),
    (changing.not_in_order, 0.03),
    (asking.ask_total, 0.10),
    (asking.read_back, 0.10),
    (asking.how_many, 0.03),
    (asking.is_in_order, 0.03),
    (asking.say_yes, 0.06),
    (asking.thank, 0.01),
)


def sample(rng: random.Random) -> list[tuple[str, str]]:
    """One conversation of one to seven exchanges: (customer, answer)."""
    while True:
        turns = _draw(rng).turns
        if turns and not is_held_out(turns):
            return turns


def is_held_out(turns: list[tuple[str, str]]) -> bool:
    """Whether a conversation shares a template or an item with a change with the held-out ones."""
    return any(
        template_of(heard, KNOWN_ABSENT) in _HELD_OUT
        or changed_items(f"{heard} {answer}") & COMBINATIONS
        for heard, answer in turns
    )


def _draw(rng: random.Random) -> Dialog:
    dialog = Dialog(rng)
    for _ in range(rng.choice((1, 2, 3, 3, 4, 4, 5))):
        _pick_exchange(dialog)(dialog)
    end = rng.random()
    if end < 0.5:
        asking.finish(dialog)
        if end < 0.06:
            asking.thank_at_the_end(dialog)
        elif end < 0.09:
            ordering.order(dialog)
    return dialog


def _pick_exchange(dialog: Dialog) -> Exchange:
    choices = list(ANY)
    if not dialog.turns:
        choices += AT_FIRST
    if dialog.order.items:
        choices += WITH_ORDER
    kinds, weights = zip(*choices, strict=True)
    picked: Exchange = dialog.rng.choices(kinds, weights)[0]
    return picked
