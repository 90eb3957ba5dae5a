"""The second held-out conversations: right by the same rules, and shared with nothing."""

import re

import pytest

from build.smollm.dialogs import KNOWN_ABSENT
from build.smollm.evaluate import judge
from build.smollm.held_out import ABSENT as FIRST_ABSENT
from build.smollm.held_out import changed_items, templates
from build.smollm.held_out_again import ABSENT_AGAIN, CONVERSATIONS_AGAIN
from build.smollm.lines import template_of
from build.smollm.turns import Line
from python_backends.ordering.menu import money
from python_backends.ordering.order import Order

Dialogs = list[list[tuple[str, str]]]
LINES = [line for conversation in CONVERSATIONS_AGAIN for line in conversation]
ABSENT = (*KNOWN_ABSENT, *ABSENT_AGAIN)
TEMPLATES = {template_of(line.heard, ABSENT) for line in LINES}
TOTAL = re.compile(r"total is (\$\d+(?:\.\d\d)?)", re.IGNORECASE)


def test_there_are_ten_conversations_of_five_turns() -> None:
    assert [len(conversation) for conversation in CONVERSATIONS_AGAIN] == [5] * 10


@pytest.mark.parametrize("conversation", CONVERSATIONS_AGAIN)
def test_the_good_answers_are_right(conversation: tuple[Line, ...]) -> None:
    rows = judge(conversation, [line.good for line in conversation])
    assert [row for row in rows if not row["right"]] == []
    assert rows[-1]["final_order_right"]


@pytest.mark.parametrize("line", LINES)
def test_an_apology_is_wrong(line: Line) -> None:
    (row,) = judge((line,), ["I'm sorry for the mistake."])
    assert not row["right"]


def test_every_total_is_that_of_the_running_order() -> None:
    said, expected = [], []
    for conversation in CONVERSATIONS_AGAIN:
        order = Order()
        for line in conversation:
            order = order.after(line.good)
            if found := TOTAL.search(line.good):
                said.append(found[1])
                expected.append(money(order.cents))
    assert len(said) >= 8
    assert said == expected


def test_no_sentence_template_is_shared_with_training(trained: Dialogs) -> None:
    used = {template_of(heard, ABSENT) for dialog in trained for heard, _ in dialog}
    assert len(TEMPLATES) == 50
    assert len(used) > 1500
    assert not used & TEMPLATES


def test_no_item_with_one_of_its_changes_is_shared_with_training(
    changes_trained: set[tuple[str, str]],
) -> None:
    own = {pair for line in LINES for pair in changed_items(line.heard) | changed_items(line.good)}
    assert len(own) >= 9
    assert not changes_trained & own


def test_nothing_that_is_asked_for_in_vain_is_in_training(text_trained: str) -> None:
    assert not [name for name in ABSENT_AGAIN if name in text_trained]


def test_the_two_measures_share_no_sentence_template_and_no_absent_food() -> None:
    assert not TEMPLATES & templates(ABSENT)
    assert not set(ABSENT_AGAIN) & set(FIRST_ABSENT)
