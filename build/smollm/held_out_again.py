"""Ten more conversations of five turns, written without sight of what training is drawn from.

They are a second measure of the ordering model: nothing in them was chosen by how it does on them.
That they share no sentence template, and no item with one of its changes, with any line that
training uses is proved by `tests/build/test_held_out_again.py`.
"""

from typing import Final

from build.smollm.turns import (
    Line,
    back,
    changed,
    declined,
    done,
    elsewhere,
    first,
    first_which_size,
    greeted,
    more,
    not_sold,
    price,
    removed,
    sold,
    sold_by_size,
    total,
    which_size,
)

ABSENT_AGAIN: Final = ("pierogi", "tamales", "gumbo", "jambalaya", "goulash", "baklava")
"""What these customers ask for in vain; in training nobody does."""


CONVERSATIONS_AGAIN: Final = (
    (
        first(
            "Yeah, so I'd be after a chicken wrap plus large hash browns without onions.",
            "a chicken wrap and large hash browns with no onions",
        ),
        which_size("And something hot to wake me up, a coffee I guess.", "coffee"),
        more("The biggest you pour, so a large.", "a large coffee"),
        removed(
            "I really shouldn't be eating hash browns, drop those.",
            "the large hash browns with no onions",
        ),
        done("Great, that'll be the whole lot from me.", "$6.50"),
    ),
    (
        greeted("Heya, is there anybody on the other end of this speaker?"),
        not_sold("Could my wife possibly get a plate of pierogi?", "pierogi"),
        price("Then what would a fish sandwich set me back?", "fish sandwich"),
        first("Fair enough, put me down for one.", "a fish sandwich"),
        done("Nope, we've got all we came for.", "$4.50"),
    ),
    (
        Line(
            "Which soft drinks are on offer here?",
            "We have Coke, Diet Coke, Sprite, lemonade, iced tea and root beer. "
            "Which one would you like?",
            ("coke|sprite", "lemonade|iced tea|root beer|orange juice|water"),
            menu=True,
        ),
        first(
            "I'm not in a fizzy mood, so a medium iced coffee with no sugar.",
            "a medium iced coffee with no sugar",
        ),
        more(
            "My buddy back here wants large fries with extra bacon, and three cookies for later.",
            "large fries with extra bacon and three cookies",
        ),
        changed(
            "He's pulling a face, he only meant two cookies.", "the three cookies", "two cookies"
        ),
        back(
            "Would you run through what you've jotted down for me?",
            "a medium iced coffee with no sugar, large fries with extra bacon and two cookies",
            "$7.50",
        ),
    ),
    (
        first_which_size(
            "Afternoon, my daughter's having a salad with extra tomato, "
            "and there's fries to go alongside.",
            "a salad with extra tomato",
            "fries",
        ),
        more("A medium should keep her happy.", "medium fries"),
        not_sold("By any chance are you doing tamales this season?", "tamales"),
        elsewhere("Do you happen to know when the next bus comes past?"),
        done("Never mind. We're through, so ring us up.", "$7"),
    ),
    (
        elsewhere("Is your brother still working as a plumber?"),
        not_sold("Ha, okay. I smelled gumbo, is that something you dish up?", "gumbo"),
        price("And hot dogs, what does one of those run?", "hot dog"),
        declined("Nah, I'd better give that a miss."),
        first(
            "Instead let me try two burritos without salt and a small orange juice.",
            "two burritos with no salt and a small orange juice",
        ),
    ),
    (
        first(
            "There's three of us, so two hamburgers minus the pickles, "
            "a salad for the lady and a large root beer.",
            "two hamburgers with no pickles, a salad and a large root beer",
        ),
        removed("Turns out nobody's gonna touch that salad, so forget about it.", "the salad"),
        elsewhere("Is there a car wash somewhere around these parts?"),
        total("Where's my tally at so far?", "$9.50"),
        changed(
            "Bump the root beer down to a medium, I've got a long drive.",
            "the large root beer",
            "a medium root beer",
        ),
    ),
    (
        Line(
            "In what sizes do your onion rings come?",
            "Onion rings come in small, medium and large. What size would you like?",
            ("small", "medium", "large"),
            menu=True,
        ),
        first("Just the dinky one, a small for me.", "small onion rings"),
        more(
            "My brother will have a double cheeseburger and large chicken nuggets, hold the sauce.",
            "a double cheeseburger and large chicken nuggets with no sauce",
        ),
        not_sold("He's also wondering if there's any jambalaya going.", "jambalaya"),
        total("No biggie. How much am I in for right now?", "$10.50"),
    ),
    (
        first(
            "My turn already? I fancy a salad with extra bacon and medium mozzarella sticks.",
            "a salad with extra bacon and medium mozzarella sticks",
        ),
        changed(
            "Swap those mozzarella sticks out for medium chicken nuggets, my bad.",
            "the medium mozzarella sticks",
            "medium chicken nuggets",
        ),
        sold_by_size("Are milkshakes still a thing you make?", "milkshakes"),
        more("Large, seeing as it's Friday.", "a large milkshake"),
        back(
            "Mind repeating the entire thing so I know it's right?",
            "a salad with extra bacon, medium chicken nuggets and a large milkshake",
            "$10",
        ),
    ),
    (
        greeted("Well, a very good evening to the kitchen crew!"),
        first(
            "It's game night, so I'll be needing six hot dogs, four brownies and a large lemonade.",
            "six hot dogs, four brownies and a large lemonade",
        ),
        changed(
            "Ooh, my mother's coming too. Could that lemonade be made with no sugar?",
            "the large lemonade",
            "a large lemonade with no sugar",
        ),
        not_sold("One of the guys is asking whether you cook goulash as well.", "goulash"),
        done("He'll live. That's the party sorted, where do I pay?", "$26.50"),
    ),
    (
        not_sold("Got baklava today, or am I out of luck?", "baklava"),
        sold("That's a shame. Are apple pies available at least?", "apple pie"),
        first("Five will do nicely for the office.", "five apple pies"),
        which_size("I could use a Diet Coke to sip on the way back.", "Diet Coke"),
        more("Oh, nothing huge, let's say small.", "a small Diet Coke"),
    ),
)
