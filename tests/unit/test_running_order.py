"""The running order: what the assistant's own confirmations add, change and take away."""

import pytest

from python_backends.ordering.menu import (
    CHANGES,
    DRINKS,
    EXTRA_CENTS,
    FOOD,
    SIDES,
    SIZES,
    Item,
    joined,
    menu_text,
    money,
    unit_cents,
)
from python_backends.ordering.order import (
    LONGEST_REPLY,
    LONGEST_WRITTEN,
    MOST_CHANGES,
    MOST_LINES,
    MOST_OF_ONE,
    MOST_WRITTEN,
    Order,
    items_in,
    order_after,
)

TACOS = "Got it, two tacos with no onions and a large Coke. Anything else?"


def test_a_confirmation_is_read_with_counts_sizes_and_changes() -> None:
    assert order_after([TACOS]).items == (
        Item("taco", 2, changes=("no onions",)),
        Item("Coke", size="large"),
    )


@pytest.mark.parametrize("name", [*FOOD, *SIDES, *DRINKS])
@pytest.mark.parametrize("count", [1, 2, 11, 13])
def test_every_item_is_read_as_it_is_said(name: str, count: int) -> None:
    for size in ("",) if name in FOOD else SIZES:
        for changes in ((), ("no ice",), ("extra cheese", "no onions")):
            item = Item(name, count, size, changes)
            for text in (item.text, item.again, item.text.upper()):
                assert items_in(f"Got it, {text}. Anything else?") == [item]


def test_several_items_with_several_changes_are_told_apart() -> None:
    items = [
        Item(name, 2, changes=(change, "no sugar"))
        for name, change in zip(FOOD, CHANGES, strict=False)
    ]
    assert items_in(joined([item.text for item in items])) == items


def test_items_are_said_as_people_say_them() -> None:
    items = [Item("taco", 2, changes=("no onions",)), Item("fries", size="large"), Item("iced tea")]
    assert joined([item.text for item in items]) == (
        "two tacos with no onions, large fries and an iced tea"
    )
    assert Item("iced tea", size="large").again == "the large iced tea"
    assert Item("chicken sandwich", 2).again == "the two chicken sandwiches"


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (
            "Sure, I added large fries. Anything else?",
            "[Order: two tacos with no onions, a large Coke and large fries. Total: $10.50]",
        ),
        (
            "Sure, I added a large Coke. Anything else?",
            "[Order: two tacos with no onions and two large Cokes. Total: $10]",
        ),
        (
            "Sure, I changed the large Coke to a small Sprite. Anything else?",
            "[Order: two tacos with no onions and a small Sprite. Total: $6.50]",
        ),
        (
            "Sure, I changed the two tacos to three tacos. I added a cookie. Anything else?",
            "[Order: three tacos, a large Coke and a cookie. Total: $11]",
        ),
        ("Okay, I removed the two tacos. Anything else?", "[Order: a large Coke. Total: $2.50]"),
        ("Okay, I removed everything. What can I get for you?", "[No order yet]"),
        (
            "Got it, a Coke. Sorry, we don't have pizza. Anything else?",
            "[Order: two tacos with no onions, a large Coke and a medium Coke. Total: $9.50]",
        ),
    ],
)
def test_a_reply_changes_the_order_as_it_says(reply: str, line: str) -> None:
    assert order_after([TACOS, reply]).line == line


@pytest.mark.parametrize(
    "reply",
    [
        "You have two tacos with no onions and a large Coke. The total is $7.50. Anything else?",
        "Yes, tacos are $2.50 each. How many would you like?",
        "Sorry, we don't have hamburger pizza. Would you like something else?",
        "Sure, what size Coke would you like?",
        "We have Coke, Sprite, lemonade, iced tea and coffee. Which would you like?",
        "Okay, I removed the fries. Anything else?",
        "Got it,",
        "",
    ],
)
def test_what_confirms_nothing_changes_nothing(reply: str) -> None:
    before = order_after([TACOS])
    assert before.after(reply) == before


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        ("Got it, a hot dog with no mustard and no onion rings.", "a hot dog with no mustard"),
        ("Got it, three tacos. Okay, I removed one taco.", "two tacos"),
        ("Got it, three tacos. Okay, I removed the tacos.", ""),
        ("Got it, three tacos. I changed one taco to a burrito.", "two tacos and a burrito"),
        ("Got it, a taco. I changed the taco to a wrap.", "a taco"),
        ("Got it, thirteen tacos.", "13 tacos"),
        ("Got it, a dozen tacos and a couple of salads.", "twelve tacos and two salads"),
        ("Got it, 100 tacos.", "100 tacos"),
        ("Got it, 1000 tacos and 1.5 burritos. I added $5 salads.", ""),
        (
            "Got it, a taco with no onions, no pickles and extra cheese.",
            "a taco with no onions and no pickles and extra cheese",
        ),
        ("I added a burrito and added two cookies.", "a burrito and two cookies"),
        (
            "Got it, a taco. I added a cookie and changed the taco to a salad.",
            "a salad and a cookie",
        ),
        ("Got it, a taco. I removed the taco and added a burrito.", "a burrito"),
        ("Sorry, I have not added a taco. I haven't added a salad.", ""),
        ("Got it, a taco and a salad. I removed everything but the taco.", "a taco"),
        ("I changed the burrito to a salad.", "a salad"),
        ("Okay, got it, two tacos.", "two tacos"),
        (
            "Got it, a taco with no onions and extra cheese. "
            "I added a taco with extra cheese and no onions.",
            "two tacos with no onions and extra cheese",
        ),
        (
            "Got it, a Coke with no ice and a taco with no onions and extra cheese.",
            "a medium Coke with no ice and a taco with no onions and extra cheese",
        ),
    ],
)
def test_an_order_is_what_the_customer_was_told(replies: str, text: str) -> None:
    assert Order().after(replies).text == text


def test_of_two_lines_of_one_name_the_one_that_is_described_is_meant() -> None:
    cokes = order_after(["Got it, a small Coke and two large Cokes. Anything else?"])
    assert cokes.after("Okay, I removed the small Coke.").text == "two large Cokes"
    assert cokes.after("Okay, I removed the two large Cokes.").text == "a small Coke"


def test_what_takes_the_place_of_something_stands_where_it_stood() -> None:
    order = order_after(
        ["Got it, a taco, a salad and a cookie.", "I changed the taco to a burrito."]
    )
    assert order.text == "a burrito, a salad and a cookie"


def test_extras_cost_and_other_changes_do_not() -> None:
    assert Item("hamburger", 2, changes=("extra cheese", "no onions")).cents == 2 * (350 + 50)
    assert Item("Coke", 3, "large").cents == 3 * 250
    assert Item("fries").cents == unit_cents("fries", "medium") == 250
    with pytest.raises(KeyError):
        unit_cents("pizza", "")


@pytest.mark.parametrize(
    ("cents", "text"), [(50, "50 cents"), (400, "$4"), (350, "$3.50"), (1205, "$12.05")]
)
def test_money_is_written_as_the_voice_reads_it(cents: int, text: str) -> None:
    assert money(cents) == text


def test_the_menu_names_everything_with_its_price() -> None:
    text = menu_text()
    assert all(f"{name} {money(cents)}" in text for name, cents in FOOD.items())
    assert all(name in text for name in (*SIDES, *DRINKS))
    assert all(name.split()[1] in text for name in EXTRA_CENTS)


def test_an_order_without_end_has_a_short_line_and_its_whole_total() -> None:
    names = list(FOOD)[: MOST_WRITTEN + 3]
    order = order_after(f"Got it, {Item(name).text}." for name in names)
    assert order.line.startswith("[Order: 4 other items, ")
    assert order.line.endswith(f"Total: {money(sum(FOOD[name] for name in names))}]")
    assert len(items_in(order.line)) == MOST_WRITTEN - 1


def test_an_order_of_long_lines_is_written_in_few_characters() -> None:
    changes = CHANGES[:MOST_CHANGES]
    order = Order(tuple(Item(name, 11, changes=changes) for name in list(FOOD)[:MOST_WRITTEN]))
    assert len(order.line) < LONGEST_WRITTEN + 80
    assert " other items, " in order.line


def test_an_order_has_so_many_lines_and_no_more() -> None:
    """What a hostile history costs is bounded: each item is compared with so many lines."""
    pairs = [f"a taco with {one} and {other}" for one in CHANGES for other in CHANGES]
    order = order_after(f"Got it, {joined(pairs[at : at + 10])}." for at in range(0, 400, 10))
    assert len(order.items) == MOST_LINES


def test_text_of_a_megabyte_is_no_reply_of_ours() -> None:
    assert Order().after("Got it, a taco. " * (LONGEST_REPLY // 16 + 1)) == Order()


def test_the_same_again_and_again_stays_a_number_that_can_be_said() -> None:
    order = order_after(
        ["Got it, 999 tacos.", "Sure, I added 99 tacos.", "Sure, I added 0 cookies."]
    )
    assert [item.count for item in order.items] == [MOST_OF_ONE, 1]
