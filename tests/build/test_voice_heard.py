"""How it is told what was misheard: other spellings of the same sounds, and numbers in figures."""

import pytest

from build.voice.amounts import readings
from build.voice.spelling import respelt
from build.voice.unseen import CASES, Case

BY_TEXT = {case.text: case for case in CASES}


def case(beginning: str) -> Case:
    (found,) = [case for text, case in BY_TEXT.items() if text.startswith(beginning)]
    return found


def test_other_spellings_of_the_same_sounds_are_no_errors() -> None:
    heard = "Dr. Chen had an omelet at 945, from 630 until 11, for 250 people."
    said = "Doctor Chen had an omelette at nine forty-five, from 6:30 until 11, for 250 people."
    assert respelt(heard, said) == (
        "Doctor Chen had an omelette at 9 45, from 6 30 until 11, for 250 people."
    )
    assert respelt("Sorry about the weight, two.", "Sorry about the wait, too.") == (
        "Sorry about the wait, too."
    )
    assert respelt("Can I get to wraps to go, too?", "Can I get two wraps to go, too?") == (
        "can i get two wraps to go too"
    )
    assert respelt("Two go.", "Two to go.") == "two go"
    assert respelt("It doesn't matter.", "A dozen kinds.") == "It doesn't matter."
    assert respelt("Dr. Chen is in.", "Dr. Chen is in.") == "Dr. Chen is in."


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        ("I have for.", "I have four."),
        ("They ordered for there kids.", "They ordered four their kids."),
        ("He sat over their.", "He sat over there."),
    ],
)
def test_words_that_differ_in_stress_alone_sound_the_same(heard: str, said: str) -> None:
    assert respelt(heard, said) == said


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        ("Call us at 555-0142.", "Call us at 555-0142."),
        ("The oven is at 350 degrees.", "The oven is at 350 degrees."),
        ("The oven is at 350 degrees.", "The oven is at three hundred fifty degrees."),
        ("We close at 9455.", "We close at nine forty-five."),
        ("We close at 1345.", "We close at nine forty-five."),
        ("We close at 975.", "We close at nine forty-five."),
        ("It is sold at 945.50.", "It is sold at nine forty-five."),
    ],
)
def test_what_is_no_time_is_not_respelt(heard: str, said: str) -> None:
    assert respelt(heard, said) == heard


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_every_form_of_a_case_is_heard_right(case: Case) -> None:
    for form in (case.text, case.words, *case.also):
        assert case.is_heard_right(form), form
        assert case.is_heard_right(respelt(form, case.text)), form


def test_what_is_right_is_told_in_words() -> None:
    """Figures would accept all that they may stand for."""
    for case in CASES:
        assert not any(map(str.isdigit, "".join((case.words, *case.also))))
        assert [len(readings(one)) for one in (case.words, *case.also)] == [1] * (
            1 + len(case.also)
        )


@pytest.mark.parametrize(
    ("beginning", "heard", "right"),
    [
        ("Your total", "Your total is 14 dollars and 50 cents", True),
        ("Your total", "Your total is fourteen fifty.", True),
        ("Your total", "Your total is $14.15.", False),
        ("Your total", "Your total is fourteen point five.", False),
        ("Your total", "Your total is $14.", False),
        ("It was $112", "It was $112.30 for the whole party.", True),
        ("Your change", "Your change is $0.75.", True),
        ("Your change", "Your change is zero dollars and seventy-five cents.", False),
        ("The milkshake", "The milkshake costs for dollars.", True),
        ("A refill", "A refill is 99 cents.", True),
        ("A refill", "A refill is 99 dollars.", False),
        ("We close", "We close at 11 p.m.", True),
        ("We close", "We close at 11 a.m.", False),
        ("We open", "We open at 8 o'clock.", True),
        ("We open", "We open at eight zero zero.", False),
        ("Your table", "Your table is ready at 745.", True),
        ("Your table", "Your table is ready at seven hundred forty-five.", False),
        ("Come back", "Come back at 6.05 tomorrow.", True),
        ("Lunch is", "Lunch is from 1130 to 230.", True),
        ("You are number", "You are number one hundred and three in line.", True),
        ("You are number", "You are number 130 in line.", False),
        ("The meal", "The meal has 1250 calories.", True),
        ("The meal", "The meal has twelve fifty calories.", False),
        ("We sold", "We sold 2000 burgers.", True),
        ("We sold", "We sold two zero burgers.", False),
        ("She was", "She was born in 1987.", True),
        ("She was", "She was born in one thousand nine hundred eighty-seven.", False),
        ("That is the 3rd", "That is the 3rd window.", True),
        ("That is the 3rd", "That is the three rd window.", False),
        ("That is the 3rd", "That is the three window.", False),
        ("The party", "The party is on June 21.", True),
        ("The party", "The party is on June twenty-one.", False),
        ("Call us", "Call us at 5550142.", True),
        ("Call us", "Call us at 555-0124.", False),
        ("Use 1/2", "Use 1/2 cup of sugar.", True),
        ("Use 1/2", "Use ½ cup of sugar.", True),
        ("Use 1/2", "Use one-half cup of sugar.", True),
        ("Use 1/2", "Use one two cup of sugar.", False),
        ("It is 2.5", "It is 2.5 miles away.", True),
        ("It is 2.5", "It is two point five miles away.", True),
        ("It is 2.5", "It is two five miles away.", False),
        ("It is 2.5", "It is 25 miles away.", False),
        ("About 20%", "About 20 per cent of guests tip.", True),
        ("It weighs", "It weighs .75 pounds.", True),
        ("It weighs", "It weighs zero seventy-five pounds.", False),
        ("It weighs", "It weighs seventy-five pounds.", False),
        ("Table 8", "table 8 once for waters", True),
        ("Table 8", "Table ate wants for waters.", True),
        ("Table 8", "Table eight wants five waters.", False),
    ],
)
def test_a_number_is_heard_right_however_it_is_spelt(
    beginning: str, heard: str, right: bool
) -> None:
    assert case(beginning).is_heard_right(heard) == right
