"""Exchanges in which something is ordered, or asked about with a view to ordering it."""

from dataclasses import replace

from build.smollm import phrases
from build.smollm.dialog import ANYTHING_ELSE, Dialog
from build.smollm.saying import changes_said, items_said
from build.smollm.wares import ABSENT, in_general, one_of, random_changes, random_items
from python_backends.ordering.menu import (
    DRINKS,
    FOOD,
    SIDES,
    SIZES,
    Item,
    count_word,
    is_sized,
    joined,
    money,
    one,
    plural,
    unit_cents,
)


def order(dialog: Dialog) -> None:
    """One to three complete items, now and then with the end of the order."""
    items = random_items(dialog.rng, dialog.rng.choice((1, 1, 1, 2, 2, 3)))
    said = items_said(items, dialog.rng)
    if dialog.chance(0.03):
        answer = f"{dialog.added(items)} Please pull forward to the window."
        dialog.say(dialog.pick(phrases.AND_DONE, said), answer)
        return
    dialog.say(wish(dialog, said), f"{dialog.added(items)} {ANYTHING_ELSE}")


def order_for_two(dialog: Dialog) -> None:
    """One line for two people, or for somebody else."""
    items = random_items(dialog.rng, dialog.rng.choice((1, 2, 2, 2)))
    said = [items_said([item], dialog.rng) for item in items]
    parts = [_their_wish(dialog, said[0])]
    if len(said) == 2:
        own = dialog.chance(0.7)
        parts.append(dialog.pick(phrases.WISHES, said[1]) if own else _their_wish(dialog, said[1]))
    link = dialog.rng.choice((" and ", " and ", ", ", ", and "))
    user = f"{dialog.rng.choice(phrases.OPENINGS)}{link.join(parts)}"
    dialog.say(user, f"{dialog.added(items)} {ANYTHING_ELSE}")


def _their_wish(dialog: Dialog, said: str) -> str:
    return dialog.pick(phrases.THEIR_WISHES, said, who=dialog.rng.choice(phrases.PEOPLE))


def wish(dialog: Dialog, said: str) -> str:
    """A whole sentence that asks for something."""
    more = bool(dialog.order.items) and dialog.chance(0.6)
    core = dialog.pick(phrases.ADDITIONS if more else phrases.WISHES, said)
    opening = dialog.rng.choice(phrases.OPENINGS) if not more or dialog.chance(0.2) else ""
    return f"{opening}{core}{dialog.rng.choice(phrases.ENDINGS)}"


def order_unsized(dialog: Dialog) -> None:
    """Drinks or sides whose size is asked for and, mostly, given; perhaps complete items beside."""
    rng = dialog.rng
    names = rng.sample((*DRINKS, *SIDES), 2 if dialog.chance(0.12) else 1)
    open_items = [_unsized(dialog, name) for name in names]
    whole = random_items(rng, 1) if len(names) == 1 and dialog.chance(0.35) else []
    whole = [item for item in whole if item.name not in names]
    listed = [*whole, *open_items] if dialog.chance(0.8) else [*open_items, *whole]
    asked = _ask_size(open_items)
    lead = f"{dialog.added(whole)} What" if whole else "Sure, what"
    dialog.say(wish(dialog, items_said(listed, rng)), f"{lead} {asked}")
    if dialog.chance(0.12):
        dialog.say(dialog.pick(phrases.PARDON), f"What {asked}")
    if dialog.chance(0.85):
        _give_size(dialog, open_items)


def _unsized(dialog: Dialog, name: str) -> Item:
    changes = random_changes(name, dialog.rng, 0.3)
    return Item(name, dialog.rng.choice((1, 1, 1, 1, 2, 3)), changes=changes)


def _ask_size(items: list[Item]) -> str:
    if len(items) == 1:
        noun = plural(items[0].name) if items[0].count > 1 else items[0].name
        return f"size {noun} would you like?"
    return f"sizes would you like for {joined([item.again for item in items])}?"


def _give_size(dialog: Dialog, items: list[Item]) -> None:
    if len(items) == 2 and dialog.chance(0.5):
        size = dialog.rng.choice(SIZES)
        sized = [replace(item, size=size) for item in items]
        said = dialog.pick(phrases.SIZED_BOTH, size)
    else:
        sized = [replace(item, size=dialog.rng.choice(SIZES)) for item in items]
        said = items_said(sized, dialog.rng)
        if len(items) == 1 and dialog.chance(0.8):
            said = dialog.pick(phrases.SIZED, _size_word(dialog, sized[0].size))
    if dialog.chance(0.1):
        more = random_items(dialog.rng, 1)
        if more[0].name not in [item.name for item in items]:
            said, sized = f"{said} and {items_said(more, dialog.rng)}", [*sized, *more]
    dialog.say(said, f"{dialog.added(sized)} {ANYTHING_ELSE}")


def _size_word(dialog: Dialog, size: str) -> str:
    others = {"small": "smallest", "medium": "regular", "large": "big"}
    return others[size] if dialog.chance(0.05) else size


def refuse(dialog: Dialog) -> None:
    """Something that is not sold, asked about or ordered."""
    rng = dialog.rng
    names = rng.sample(ABSENT, 2 if dialog.chance(0.1) else 1)
    refused = " or ".join(in_general(name) for name in names)
    if dialog.chance(0.5):
        user = dialog.pick(phrases.ASKED, refused)
        user = f"{rng.choice(phrases.OPENINGS)}{user}" if dialog.chance(0.2) else user
    else:
        user = wish(dialog, " and ".join(one_of(name, rng) for name in names))
    dialog.say(user, f"Sorry, we don't have {refused}. Would you like something else?")
    if dialog.chance(0.12):
        dialog.say(dialog.pick(phrases.YES_ALONE), dialog.invitation)
    elif dialog.chance(0.2):
        order(dialog)


def order_and_refuse(dialog: Dialog) -> None:
    """Something sold and something not, in one line."""
    rng = dialog.rng
    items, absent = random_items(rng, rng.choice((1, 1, 2))), rng.choice(ABSENT)
    said = [items_said(items, rng), one_of(absent, rng)]
    rng.shuffle(said)
    answer = f"{dialog.added(items)} Sorry, we don't have {in_general(absent)}. {ANYTHING_ELSE}"
    if dialog.chance(0.3):
        asked = dialog.pick(phrases.ASKED, in_general(absent))
        ordered = wish(dialog, items_said(items, rng))
        dialog.say(f"{ordered}{rng.choice((', and ', '. ', ' and '))}{asked}", answer)
        return
    link = rng.choice((" and ", " and ", " and also ", ", and "))
    dialog.say(wish(dialog, link.join(said)), answer)


def ask_whether_sold(dialog: Dialog) -> None:
    """A question about something that is sold, and what is made of the answer."""
    rng = dialog.rng
    name = rng.choice((*FOOD, *DRINKS, *SIDES))
    user = dialog.pick(phrases.ASKED, plural(name) if name in FOOD else name)
    user = f"{rng.choice(phrases.OPENINGS)}{user}" if dialog.chance(0.2) else user
    if is_sized(name):
        dialog.say(user, f"Yes, we have {name}. What size would you like?")
        follow = rng.random()
        if follow < 0.65:
            _give_size(dialog, [Item(name)])
        elif follow < 0.75:
            _decline(dialog)
        return
    price = f"{plural(name)} are {money(FOOD[name])} each"
    dialog.say(user, f"Yes, {price}. How many would you like?")
    follow = rng.random()
    if follow < 0.65:
        _take_some(dialog, name)
    elif follow < 0.78:
        _decline(dialog)


def ask_price(dialog: Dialog) -> None:
    """A price out of the menu, and what is made of it."""
    rng = dialog.rng
    if dialog.chance(0.12):
        extra = rng.choice(("extra cheese", "extra bacon"))
        user = dialog.pick(phrases.EXTRA_PRICE, extra)
        dialog.say(user, f"{extra.capitalize()} is 50 cents. {dialog.tail}")
        return
    name = rng.choice((*FOOD, *DRINKS, *SIDES))
    size = rng.choice(SIZES) if is_sized(name) and dialog.chance(0.7) else ""
    noun = f"{size} {name}".strip()
    many = name in SIDES
    thing = noun if many else one(noun)
    if name in FOOD and dialog.chance(0.3):
        thing = plural(noun)
    if thing.startswith("a") and not many and dialog.chance(0.3):
        thing = f"the {noun}"
    user = dialog.pick(phrases.PRICES, thing)
    head = (
        noun[0].upper() + noun[1:] if many else one(noun).capitalize().replace(noun.lower(), noun)
    )
    verb = "are" if many else "is"
    if is_sized(name) and not size:
        small, medium, large = (money(unit_cents(name, one_size)) for one_size in SIZES)
        ask = "What size would you like?"
        dialog.say(user, f"{head} {verb} {small}, {medium} or {large}. {ask}")
        if dialog.chance(0.6):
            _give_size(dialog, [Item(name)])
        return
    ask = "Would you like some?" if many else "Would you like one?"
    dialog.say(user, f"{head} {verb} {money(unit_cents(name, size))}. {ask}")
    follow = rng.random()
    if follow < 0.35:
        item = Item(name, 1, size)
        dialog.say(dialog.pick(phrases.YES_ONE), f"{dialog.added([item])} {ANYTHING_ELSE}")
    elif follow < 0.6:
        _take_some(dialog, name, size)
    elif follow < 0.75:
        _decline(dialog)


def _take_some(dialog: Dialog, name: str, size: str = "") -> None:
    """A number, perhaps with a change, in answer to a question about one item."""
    changes = random_changes(name, dialog.rng, 0.25)
    item = Item(name, dialog.rng.choice((1, 1, 2, 2, 3, 4, 5, 6)), size, changes)
    said = dialog.pick(phrases.YES_SOME, count_word(item.count))
    if changes:
        said = f"{said}{changes_said(changes, dialog.rng)}"
    dialog.say(said, f"{dialog.added([item])} {ANYTHING_ELSE}")


def _decline(dialog: Dialog) -> None:
    dialog.say(dialog.pick(phrases.NO_NOT_NOW), f"Okay. {dialog.tail}")


def no_such_size(dialog: Dialog) -> None:
    """A size that nothing has."""
    name = dialog.rng.choice((*DRINKS, *SIDES))
    user = wish(dialog, dialog.pick(phrases.NO_SUCH_SIZE, name))
    dialog.say(user, "Sorry, we have small, medium and large. Which size would you like?")
    if dialog.chance(0.6):
        _give_size(dialog, [Item(name)])
