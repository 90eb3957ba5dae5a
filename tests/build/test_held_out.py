"""The held-out conversations share nothing with training, and are judged as they should be."""

import pytest

from build.smollm.dialogs import KNOWN_ABSENT, is_held_out
from build.smollm.evaluate import change_of, invented, judge, words_are_right
from build.smollm.held_out import ABSENT as HELD_OUT_ABSENT
from build.smollm.held_out import COMBINATIONS, CONVERSATIONS, templates
from build.smollm.lines import canonical, template_of
from build.smollm.train_orders import Recipe, dialogs_at, validation_dialogs
from build.smollm.turns import Line
from build.smollm.wares import ABSENT
from python_backends.ordering.menu import Item
from python_backends.ordering.order import Order, items_in

Dialogs = list[list[tuple[str, str]]]
LINES = [line for conversation in CONVERSATIONS for line in conversation]
ORDERED = Order().after("Got it, two tacos and a large Coke. Anything else?")


def test_there_are_ten_conversations_of_five_turns() -> None:
    assert [len(conversation) for conversation in CONVERSATIONS] == [5] * 10


def test_no_sentence_template_is_shared_with_training(trained: Dialogs) -> None:
    used = {template_of(heard, KNOWN_ABSENT) for dialog in trained for heard, _ in dialog}
    held_out = templates(ABSENT)
    assert len(held_out) == 50
    assert len(used) > 1500
    assert not used & held_out


def test_no_item_with_one_of_its_changes_is_shared_with_training(
    changes_trained: set[tuple[str, str]],
) -> None:
    assert len(COMBINATIONS) >= 10
    assert not changes_trained & COMBINATIONS


def test_nothing_that_is_asked_for_in_vain_is_in_training(text_trained: str) -> None:
    assert not [name for name in HELD_OUT_ABSENT if name in text_trained]


def test_no_dialog_of_the_validation_is_trained_on() -> None:
    recipe = Recipe(steps=20)
    validation = validation_dialogs(recipe)
    assert all(len(dialog) >= 3 for dialog in validation)
    assert not [d for step in range(20) for d in dialogs_at(step, recipe) if d in validation]


def test_a_dialog_with_a_held_out_template_or_combination_is_drawn_again() -> None:
    assert is_held_out([("Hmm, lose the two salads", "Okay, I removed the two salads.")])
    assert is_held_out([("Can I get a taco with extra cheese?", "Got it.")])
    assert is_held_out([("Can I get something?", "Got it, a taco with no ice and extra cheese.")])
    assert not is_held_out([("Can I get a taco with no onions?", "Got it.")])


@pytest.mark.parametrize(
    "lines",
    [
        (
            "Can I get two tacos?",
            "can i get a burrito and a large coke",
            "Um, can I get some pizza",
        ),
        ("Make it a large.", "make it a small"),
        ("No onions on the taco", "no pickles on the 2 cheese burgers."),
        ("A taco without onions, a salad and 3 cookies", "hi, a hamburger with no mayo"),
        ("Hold the onions on the taco.", "Without onions on the taco."),
    ],
)
def test_lines_that_differ_in_what_is_named_have_one_template(lines: tuple[str, ...]) -> None:
    assert len({template_of(line, ABSENT) for line in lines}) == 1


def test_other_words_are_another_template() -> None:
    lines = ("Can I get a taco?", "Could I get a taco?", "Can I get a taco too?", "A taco.")
    assert len({template_of(line, ABSENT) for line in lines}) == 4


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_the_good_answers_are_right(conversation: tuple[Line, ...]) -> None:
    """So the totals that the lines ask for are those that conversation code comes to."""
    rows = judge(conversation, [line.good for line in conversation])
    assert [row for row in rows if not row["right"]] == []
    assert rows[-1]["final_order_right"]


@pytest.mark.parametrize("line", LINES)
def test_no_answer_and_an_apology_are_wrong(line: Line) -> None:
    apology = "I'm sorry for the mistake."
    assert not words_are_right(line, "")
    (row,) = judge((line,), [apology])
    assert not row["right"]


def test_every_answer_that_confirms_something_names_it() -> None:
    confirming = [line for line in LINES if items_in(line.good) and "Got it" in line.good]
    assert len(confirming) >= 8
    assert not any(words_are_right(line, "Got it. Anything else?") for line in confirming)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("Got it, a taco. Anything else?", set()),
        ("Got it, a burrito. Anything else?", set()),
        ("Got it, a burrito with no onions. Anything else?", {"no onions"}),
        ("Got it, a burrito and a cookie. Anything else?", {"cookie"}),
        ("Sorry, we don't have pizza.", {"pizza"}),
        ("Sorry, we don't have gyros.", set()),
        ("Would you like fries with that?", {"fries"}),
        ("Sure, I added a burrito and a wrap.", {"wrap"}),
        ("Sure, I changed the two tacos to two sides.", {"two", "sides"}),
        ("We sell sides.", set()),
    ],
)
def test_an_item_is_invented_when_it_was_neither_asked_for_nor_ordered(
    answer: str, found: set[str]
) -> None:
    asked = "Two tacos and a large Coke please.\nA burrito and gyros."
    assert invented(answer, asked, ORDERED) == found


def test_in_answer_to_a_question_about_the_menu_only_the_menu_may_be_named() -> None:
    line = Line("What drinks are there?", "We have Coke and coffee.", ("coke",), menu=True)
    (good,) = judge((line,), ["We have Coke and Sprite."])
    (bad,) = judge((line,), ["We have Coke and pizza."])
    assert good["right"]
    assert bad["invented"] == ["pizza"]


def test_an_item_that_is_confirmed_with_the_wrong_number_is_a_wrong_order() -> None:
    good = Line("Three salads.", "Sure, I added three salads. Anything else?")
    rows = judge((good, good), ["Got it, three salads.", "Sure, I added two salads."])
    assert [row["right"] for row in rows] == [True, False]
    assert not rows[-1]["final_order_right"]


def test_a_total_is_heard_whole() -> None:
    line = Line("And the total?", "Your total is $2 so far. Anything else?", ("$2",))
    right = ("Your total is $2 so far.", "Your total is $2.", "That is $2")
    assert all(words_are_right(line, answer) for answer in right)
    wrong = ("Your total is $2.50 so far.", "Your total is $20.", "Your total is $12.")
    assert not any(words_are_right(line, answer) for answer in wrong)


def test_what_is_asked_about_is_not_what_was_ordered() -> None:
    line = Line("A taco and a Coke.", "Got it, a taco. What size Coke would you like?")
    assert words_are_right(line, line.good)
    assert not words_are_right(line, "Sure, what size Coke would you like?")


def test_what_an_answer_does_to_the_order_is_counted_by_item() -> None:
    change = change_of(ORDERED, "Sure, I changed the two tacos to one taco with no onions.")
    assert change == {Item("taco"): -2, Item("taco", changes=("no onions",)): 1}


def test_ways_to_leave_something_out_are_the_same() -> None:
    for said in ("without onions", "hold the onions", "skip the onions", "leave off the onions"):
        assert canonical(f"a taco {said}") == "a taco with no onions"
