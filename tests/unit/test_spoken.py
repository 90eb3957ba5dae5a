"""What is written is read as one would say it: a table of both, compared by their phonemes."""

import random
import re
import time
from functools import cache

import pytest

from build.voice.texts import training_texts
from python_backends.spoken import Phonemizer, spoken_text

SAID = {
    # Money.
    "It costs $1,234.56.": "it costs one thousand two hundred thirty four dollars and fifty six "
    "cents.",
    "$1.25": "one dollar and twenty five cents",
    "€1.234,56": "one thousand two hundred thirty four euros and fifty six cents",
    "-$5": "minus five dollars",
    "US$5 million": "five million U.S. dollars",
    "20 €": "twenty euros",
    "₿2": "two bitcoin",
    "$5/month": "five dollars per month",
    "$5-$10": "five dollars to ten dollars",
    "€2bn": "two billion euros",
    "$1.5-2 million": "one point five to two million dollars",
    # Numbers.
    "10.000.000": "ten million",
    "3,5 kg": "three point five kilograms",
    "-4": "minus four",
    "007": "zero zero seven",
    "50%": "fifty percent",
    "5\u201310%": "five to ten percent",
    "10% - 20%": "ten percent to twenty percent",
    "$5 - $10": "five dollars to ten dollars",
    "$1,000 - $1,500 a month": "one thousand dollars to one thousand five hundred dollars a month",
    "$10 - $5": "ten dollars minus five dollars",
    "$5 - $10 = -$5": "five dollars minus ten dollars equals minus five dollars",
    "10 % \u2013 20 %": "ten percent to twenty percent",
    "5 kg - 10 kg": "five kilograms to ten kilograms",
    "5kg-10kg": "five kilograms to ten kilograms",
    "it fell 10% - 5 points": "it fell ten percent, five points",
    "the 21st": "the twenty first",
    "1/2": "one half",
    "2½ cups": "two and one half cups",
    "10k users": "ten thousand users",
    "7B parameters": "seven billion parameters",
    "gate 12B and 221B Baker St.": "gate twelve B and two hundred twenty one B Baker Street.",
    "It was 21-14.": "it was twenty one to fourteen.",
    "It's 10/10!": "it's ten out of ten!",
    "2x burger (x3), 2x faster": "two burger, times three, two times faster",
    "1e-5": "one times ten to the minus five",
    "1,2,3": "one, two, three",
    "9" * 12: " ".join(["nine"] * 12),
    "9" * 40: " ".join(["nine"] * 40),
    # Times and dates.
    "3:05 pm": "three oh five P.M.",
    "open 9am\u20135pm": "open nine A.M. to five P.M.",
    "10:30-11:45": "ten thirty to eleven forty five",
    "2026-11-29": "November twenty-ninth, twenty twenty six",
    "2026-11-29T15:30:00Z": "November twenty-ninth, twenty twenty six, fifteen thirty",
    "29.11.2026": "November twenty-ninth, twenty twenty six",
    "24/7": "twenty four seven",
    # Units.
    "76°F": "seventy six degrees Fahrenheit",
    "5 m²": "five square meters",
    "100m": "one hundred meters",
    "6'2\"": "six foot two",
    "3 lbs. of meat": "three pounds of meat",
    "5 ft. 3 in.": "five feet three inches",
    "2 tbsp in 9.58s": "two tablespoons in nine point five eight seconds",
    "1920x1080": "nineteen twenty by ten eighty",
    "3 x 4 = 12": "three times four equals twelve",
    "2*3*4": "two times three times four",
    # Codes.
    "192.168.1.1": "one nine two dot one six eight dot one dot one",
    "+44 20 7946 0958": "plus four four, two zero, seven nine four six, zero nine five eight",
    "(555) 123-4567": "five five five, one two three, four five six seven",
    "1-800-555-0199": "one, eight zero zero, five five five, zero one nine nine",
    "v2.0.1": "version two point zero point one",
    "4111 1111 1111 1111": "four one one one, " + ", ".join(["one one one one"] * 3),
    "order #B-12": "order hashtag B twelve",
    # Words.
    "Dr. Smith, St. Paul": "Doctor Smith, Saint Paul",
    "e.g. tea, i.e. a drink": "for example tea, that is a drink",
    "C# and C++": "C sharp and C plus plus",
    "naïve": "naive",
    # Streets.
    "20 W 5th St": "twenty West fifth Street",
    "at 20 W. 5th St., Boston": "at twenty West fifth Street, Boston",
    "20 W Main St and a 20 W bulb": "twenty West Main Street and a twenty watts bulb",
    "123 SW Oak Rd": "one hundred twenty three Southwest Oak Road",
    "E 5th Ave": "East fifth Avenue",
    "MACY'S 5th Ave store": "MACY'S fifth Avenue store",
    "100 E Lee Blvd.": "one hundred East Lee Boulevard.",
    "20 W 5th": "twenty West fifth",
    "2 Young Dr. Smith fans": "two Young Doctor Smith fans",
    "2 Large Dr peppers": "two Large Doctor peppers",
    "the 1st St. Bernard": "the first Saint Bernard",
    "my 2nd Dr. visit": "my second Doctor visit",
    "meet on 34th St. at noon": "meet on thirty fourth Street at noon",
    # Addresses.
    "https://www.example.com/docs?q=1#top": "example dot com slash docs",
    "https://x.org/9f86d081884c7d65": "x dot org",
    "me@mail.co.uk": "me at mail dot co dot U K",
    "[the docs](https://example.com)": "the docs",
    # What an eye reads otherwise.
    "**bold** `x` # T": "bold x T",
    "# Title\n\nText": "title. text",
    "- tea\n- [x] milk": "tea. milk",
    "1. tea\n2. milk": "one. tea. two. milk",
    "1. 5 min\n2. one hour": "one. five minutes. two. one hour",
    "| a | 1 |\n|---|---|\n| b | 2 |": "a, one. b, two",
    "**bold, and": "bold, and",
    "so](http://x.com) it is": "so it is",
    "<b>Hi</b> &amp; bye": "hi and bye",
    "Run:\n```sh\nls -la\n```\nThen wait.": "run: then wait.",
    "Great 👍🏽!": "great!",
    "press 1️⃣ now": "press one now",
    "Hello 你好 world": "hello world",
    "RTL عربى here": "RTL here",
    "π ≤ 4": "pi at most four",
    "“Yes,” she said—really…": "yes, she said, really.",
    "Really?!?! (no)": "really? no",
    "wa\u200bter": "water",
    "\uff21\uff22\uff23 ③": "ABC three",
    "[Paris](/lʌndən/)": "Paris",
}

NOTHING = [
    "",
    " ",
    "\n",
    "...",
    "。。。",
    "?!",
    "—",
    "👍",
    "👨\u200d👩\u200d👧 🇩🇪",
    "你好",
    "عربى",
    ":-)",
    "***",
]
NOTHING += ["```\nprint(1)\n```", "\u200d\ufeff", "<|im_end|>", "---"]

LONGEST = 4096
"""Characters that `prosody` looks at; see `intone`."""

HARD = ["[", "](", "[a", "*a ", "_a", "`", "`a``", "<", "{ ", "\\[", "(", "!", "|a", "- ", "5 - "]
HARD += ["1", "1,", "1.", "1-", "+1", "0.0 ", "$1 ", "9:", " ", "\n", "> ", "https://", "a@", "&"]
HARD += ["5 W ", "5% - ", "20 Ab Ab Ab ", "5 kg-", "1st ", "W. "]
HARD += ["👍", "… ", "```\n", "- a\n  "]

PIECES = list(
    "aZ019.,:;-/+*#$€%°'\"()[]{}<>|=_~`\\!?& \n\t@xkM你é½²…\u2013—“\u2019\u200d\ufe0f٣π№\x00\ud800"
)
PIECES += ["http://", "e.com", "me@x.io", "am", "Dr.", "1st", "$5", "3:05", "555-1234", "```", "**"]
PIECES += ["# ", "- ", "1. ", "\n\n", "ft", "e.g.", "v1.", "👍🏽", "⅓", "2026-11-29", "['']"]


@cache
def phonemizer() -> Phonemizer:
    return Phonemizer()


def phonemes(text: str) -> str:
    symbols = {number: symbol for symbol, number in phonemizer()._ids.items()}
    return "".join(symbols[number] for number in phonemizer()(text))


def sounds(text: str) -> str:
    """Without stress, which hibari sets otherwise for digits than for words."""
    heard = phonemes(text).replace("tə", "tu").replace("tʊ", "tu")
    return "".join(symbol for symbol in heard if symbol not in "ˈˌ ")


@pytest.mark.parametrize(("written", "said"), SAID.items())
def test_what_is_written_sounds_like_what_one_says(written: str, said: str) -> None:
    """Public case H4, whose table of money, dates, times, units and codes is part of SAID."""
    assert sounds(written) == sounds(said)


@pytest.mark.parametrize("text", NOTHING)
def test_what_cannot_be_said_costs_nothing(text: str) -> None:
    """Public cases H1 and H3."""
    assert spoken_text(text) == ""
    assert phonemizer()(text) == []


@pytest.mark.parametrize("text", ["hello", "3", "Hello there, my friend."])
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert spoken_text(text) == text


@pytest.mark.parametrize("written", SAID)
def test_the_voice_gets_no_mark_that_no_training_text_has(written: str) -> None:
    assert marks(written) <= trained_marks()


@cache
def trained_marks() -> set[str]:
    return {mark for text in training_texts(400) for mark in marks(text)}


def marks(text: str) -> set[str]:
    return {symbol for symbol in phonemes(text) if not symbol.isalpha()}


def test_training_texts_are_read_as_hibari_alone_reads_them() -> None:
    """But for quoted ones, whose quotes hide words from hibari: "the uncle" with a weak "the"; and
    for those that end in "am.", whose full stop it drops."""
    alone, ids = phonemizer()._g2p, phonemizer()._ids
    for text in training_texts(1500):
        if "“" not in text and not text.endswith(("am.", "pm.")):
            assert phonemizer()(text) == [ids[one] for one in alone(text) if one in ids], text


@pytest.mark.parametrize("hard", HARD)
def test_no_text_holds_up_the_others(hard: str) -> None:
    """A pattern that goes back over and over takes minutes; all of these take 0.1 s at most. Time
    of this thread, whoever else computes."""
    text = (hard * LONGEST)[:LONGEST]
    begun_s = time.thread_time()
    spoken_text(text)
    assert time.thread_time() - begun_s < 5


@pytest.mark.parametrize("seed", range(100))
def test_any_text_at_all_is_read(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(rng.choices(PIECES, k=rng.randint(1, 60)))
    words = spoken_text(text)
    assert not set(words) & set('“”"()[]{}`*—…\u200d\n\x00你٣👍')
    assert bool(phonemizer()(text)) == bool(words)


@pytest.mark.parametrize("sentence", ["I am {} years old.", "Prices: 7, {}.", "See (chapter {})."])
def test_no_number_is_taken_for_something_else(sentence: str) -> None:
    for number in range(1000):
        written = sentence.format(number)
        assert re.findall(r"\d+", spoken_text(written)) == re.findall(r"\d+", written)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("They won 8-3 yesterday.", "8-3"),
        ("Seat 8D is yours.", "8D"),
        ("Open until 8p.m. today.", "8"),
        ("if x <3 then", "3"),
        ("x =3", "3"),
        ("8/3 of it", "8"),
        ("800-1000 people", "800-1000"),
        ("Pages 100-2000.", "100 to 2000"),
        ("1 000 000 people", "1000000"),
        ("10 000 people", "10000"),
        ("See https://medium.com/@user/post", "medium dot com"),
    ],
)
def test_what_looks_like_a_face_a_telephone_or_mail_but_is_none(written: str, said: str) -> None:
    assert said in spoken_text(written)


@pytest.mark.parametrize("face", [":-)", ":D", ";)", ":(", "=D", "<3", ":3", "xD", ":/"])
def test_faces_are_left_out(face: str) -> None:
    assert spoken_text(f"Thanks {face}").strip(" .") == "Thanks"


@pytest.mark.parametrize(
    "written", ["Call 555-1234.", "My number is 555-1234.", "Dial 800-1234 now."]
)
def test_a_telephone_number_without_a_country_is_said_digit_by_digit(written: str) -> None:
    assert "1 2 3 4" in spoken_text(written)


@pytest.mark.parametrize(
    "written", ["We open at 10:30 am.", "We close at 9 p.m.", "Is it open at 9 a.m.?", "Hello!"]
)
def test_a_sentence_ends_as_it_is_written(written: str) -> None:
    said = phonemizer()(written)
    assert said[-1] == phonemizer()(f"hello{written[-1]}")[-1]
    assert said[-2] != said[-1]
