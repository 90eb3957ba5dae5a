"""Exchanges in which something that was ordered changes."""

from dataclasses import replace

from build.smollm import phrases
from build.smollm.dialog import ANYTHING_ELSE, WHAT, Dialog
from build.smollm.dialog_orders import order
from build.smollm.saying import item_said
from build.smollm.wares import ABSENT, changes_of, in_general, one_of, random_item
from python_backends.ordering.menu import (
    DRINKS,
    FOOD,
    SIDES,
    SIZES,
    Item,
    count_word,
    is_sized,
    plural,
)


def _change(dialog: Dialog, user: str, old: Item, new: Item) -> None:
    dialog.say(user, f"Sure, I changed {old.again} to {new.text}. {ANYTHING_ELSE}")


def _kind(name: str) -> int:
    return 0 if name in FOOD else 1 if name in SIDES else 2


def _fresh(dialog: Dialog, *, like: Item | None = None) -> Item:
    """An item that is not in the order, of the kind of another one where there is one."""
    taken = {item.name for item in dialog.order.items}
    while True:
        item = random_item(dialog.rng)
        if item.name not in taken and (like is None or _kind(item.name) == _kind(like.name)):
            return item


def replace_last(dialog: Dialog) -> None:
    """ "Make that ...": of the lines of the same kind the newest is meant, else the newest."""
    if dialog.chance(0.12):
        absent = dialog.rng.choice(ABSENT)
        user = dialog.pick(phrases.INSTEAD_LAST, one_of(absent, dialog.rng))
        dialog.say(
            user, f"Sorry, we don't have {in_general(absent)}. Would you like something else?"
        )
        return
    new = _fresh(dialog)
    alike = [item for item in dialog.order.items if _kind(item.name) == _kind(new.name)]
    old = alike[-1] if alike else dialog.last
    _change(dialog, dialog.pick(phrases.INSTEAD_LAST, item_said(new, dialog.rng)), old, new)


def replace_named(dialog: Dialog) -> None:
    """One named line becomes another item; a drink or a side keeps its size if none is said."""
    old = dialog.line()
    if old is None:
        order(dialog)
        return
    new = _fresh(dialog, like=old if dialog.chance(0.8) else None)
    said = item_said(new, dialog.rng)
    if is_sized(old.name) and _kind(old.name) == _kind(new.name) and dialog.chance(0.5):
        new = Item(new.name, old.count, old.size)
        said = plural(new.name) if old.count > 1 else new.name
        said = f"a {said}" if old.count == 1 and dialog.chance(0.2) and new.name in DRINKS else said
    user = dialog.pick(phrases.INSTEAD_OF, old=dialog.said_back(old), new=said)
    _change(dialog, user, old, new)


def resize(dialog: Dialog) -> None:
    """Another size for a drink or a side."""
    old = dialog.last if dialog.chance(0.4) else dialog.line()
    if old is None or not old.size:
        order(dialog)
        return
    new = replace(old, size=dialog.rng.choice([size for size in SIZES if size != old.size]))
    if old is dialog.last and dialog.chance(0.6):
        user = dialog.pick(phrases.RESIZED_LAST, size=new.size)
    elif dialog.chance(0.25):
        user = dialog.pick(phrases.INSTEAD_LAST, new.text)
    else:
        user = dialog.pick(phrases.RESIZED, dialog.said_back(old), size=new.size)
    _change(dialog, user, old, new)


def recount(dialog: Dialog) -> None:
    """Another number of the same."""
    old = dialog.last if dialog.chance(0.4) else dialog.line()
    if old is None:
        order(dialog)
        return
    new = old.times(dialog.rng.choice([n for n in (1, 2, 2, 3, 3, 4, 5, 6) if n != old.count]))
    count = count_word(new.count)
    noun = plural(old.name) if new.count > 1 else old.name
    form = dialog.rng.random()
    if old is dialog.last and form < 0.5:
        user = dialog.pick(phrases.RECOUNTED_LAST, count=count)
    elif form < 0.8:
        form_picked = dialog.rng.choice(phrases.RECOUNTED)
        named = dialog.said_back(old) if form_picked.index("{}") < form_picked.index("{c") else noun
        user = form_picked.format(named, count=count)
    else:
        user = dialog.pick(phrases.INSTEAD_LAST, f"{count} {noun}")
    _change(dialog, user, old, new)


def adjust(dialog: Dialog) -> None:
    """A change to something that was ordered without it."""
    old = dialog.last if dialog.chance(0.4) else dialog.line()
    things = {change.split()[1] for change in old.changes} if old else set()
    able = (
        [change for change in changes_of(old.name) if change.split()[1] not in things]
        if old
        else []
    )
    if old is None or not able or len(old.changes) > 1:
        order(dialog)
        return
    change = dialog.rng.choice(able)
    new = replace(old, changes=(*old.changes, change))
    if old is dialog.last and dialog.chance(0.5):
        user = dialog.pick(phrases.ADJUSTED_LAST, change=change)
    else:
        user = dialog.pick(phrases.ADJUSTED, dialog.said_back(old), change=change)
    _change(dialog, user, old, new)


def change_and_add(dialog: Dialog) -> None:
    """A change and something new in one line."""
    old = dialog.line()
    if old is None:
        order(dialog)
        return
    new, more = _fresh(dialog, like=old), _fresh(dialog)
    if more.name == new.name:
        return
    if old.size:
        new = replace(old, size=dialog.rng.choice([size for size in SIZES if size != old.size]))
        user = dialog.pick(phrases.RESIZED, dialog.said_back(old), size=new.size)
    else:
        said = item_said(new, dialog.rng)
        user = dialog.pick(phrases.INSTEAD_OF, old=dialog.said_back(old), new=said)
    addition = dialog.pick(
        (" and add {}", ", and {}", " and I want {}", ", also {}", " plus {}"), "{}"
    )
    answer = f"Sure, I changed {old.again} to {new.text}. I added {more.text}. {ANYTHING_ELSE}"
    dialog.say(f"{user}{addition.format(item_said(more, dialog.rng))}", answer)


def remove(dialog: Dialog) -> None:
    """A line is taken off."""
    old = dialog.last if dialog.chance(0.15) else dialog.line()
    if old is None:
        order(dialog)
        return
    last = old is dialog.last and dialog.chance(0.25)
    user = (
        dialog.pick(phrases.WITHOUT_LAST)
        if last
        else dialog.pick(phrases.WITHOUT, dialog.said_back(old))
    )
    user = f"{dialog.rng.choice(('', '', 'actually, ', 'sorry, ', 'oh, '))}{user}"
    tail = ANYTHING_ELSE if len(dialog.order.items) > 1 else WHAT
    dialog.say(user, f"Okay, I removed {old.again}. {tail}")


def remove_all(dialog: Dialog) -> None:
    """Everything is taken off."""
    dialog.say(dialog.pick(phrases.WITHOUT_ALL), f"Okay, I removed everything. {WHAT}")


def one_less(dialog: Dialog) -> None:
    """One of several is taken off."""
    able = [item for item in dialog.order.items if item.count > 1]
    if not able:
        order(dialog)
        return
    old = dialog.rng.choice(able)
    phrase = dialog.rng.choice(phrases.ONE_LESS)
    noun = plural(old.name) if "of the" in phrase else old.name
    _change(dialog, phrase.format(noun), old, old.times(old.count - 1))


def one_more(dialog: Dialog) -> None:
    """The same again; its size is known."""
    old = dialog.line()
    if old is None or old.changes:
        order(dialog)
        return
    more = old.times(1)
    user = dialog.pick(phrases.ONE_MORE, more.name)
    dialog.say(user, f"Sure, I added {more.text}. {ANYTHING_ELSE}")


def not_in_order(dialog: Dialog) -> None:
    """Something is to be changed that was never ordered."""
    item = _fresh(dialog)
    noun = plural(item.name) if item.name in FOOD else item.name
    user = dialog.pick(phrases.WITHOUT, f"the {noun}")
    dialog.say(user, f"You have no {noun} in your order. {ANYTHING_ELSE}")
