"""Speaking, on the real server."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from client import audio
from client.requests import speak_request
from client.responses import TurnChunk
from client.turns import TurnClient, TurnOptions
from client.wer import word_error_rate
from loadtest.stages.timbre import pitch_hz
from python_backends.ar_loop.text import parts
from python_backends.errors import InvalidInput
from python_backends.speech import VOICES
from tests.server.asking import asking, chunks_of
from tests.server.conftest import Served

pytestmark = pytest.mark.server

TEXTS = [
    "Got it, two cheeseburgers and a large Coke.",
    "Anything else?",
    "Sorry, we don't have pizza. Would you like something else?",
    "Your total is five dollars, please pull forward to the window.",
]
GREEDY = TurnOptions(speech_temperature=0.0, seed=7)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[TurnClient]:
    with TurnClient(served.grpc_address) as one:
        yield one


def speech(chunks: list[TurnChunk]) -> audio.Floats:
    return np.concatenate([chunk.speech for chunk in chunks])


def test_what_is_spoken_is_heard_again(client: TurnClient) -> None:
    errors = []
    for line in TEXTS:
        sound = audio.resample(speech(list(client.speak(line))), 24_000, 16_000)
        errors.append(word_error_rate(line, client.transcribe(sound).text))
    assert np.mean(errors) <= 0.1


def test_several_at_once_sound_as_each_alone(client: TurnClient) -> None:
    """Public case C11: several texts, in both voices."""

    def say(line: str, voice: str) -> audio.Floats:
        return speech(list(client.speak(line, options=replace(GREEDY, voice=voice))))

    voices = [VOICES[number % len(VOICES)] for number in range(len(TEXTS))]
    alone = list(map(say, TEXTS, voices))
    with ThreadPoolExecutor(len(TEXTS)) as pool:
        together = list(pool.map(say, TEXTS, voices))
    assert_same(alone, together)
    for one, other in combinations(together, 2):
        length = min(len(one), len(other))
        assert np.abs(one[:length] - other[:length]).max() > 0.01


WAYS = [
    (4, "euler"),
    (4, "midpoint"),
    (4, "shortcut"),
    (8, "euler"),
    (8, "midpoint"),
    (32, "euler"),
    (32, "midpoint"),
]
WISHES = [
    (TEXTS[number % 2], replace(GREEDY, steps=steps, solver=solver, voice=VOICES[number // 3 % 2]))
    for number, (steps, solver) in enumerate(WAYS)
]
"""A text is asked for in as many steps by Euler's method and by shortcuts."""


def test_steps_and_solvers_are_never_mixed_and_each_sounds_as_alone(client: TurnClient) -> None:
    """Public case C13: three numbers of steps, all solvers, both voices, at the same time."""

    def say(wish: tuple[str, TurnOptions]) -> list[TurnChunk]:
        return list(client.speak(wish[0], options=wish[1]))

    alone = [speech(say(wish)) for wish in WISHES]
    with ThreadPoolExecutor(2 * len(WISHES)) as pool:
        together = list(pool.map(say, WISHES + WISHES))
    assert_same(alone + alone, list(map(speech, together)))
    batches: dict[int, set[tuple[int, str]]] = {}
    for (_, options), chunks in zip(WISHES + WISHES, together, strict=True):
        (span,) = [e for e in chunks[0].events if (e.stage, e.what) == ("acoustic", "compute")]
        key = (int(span.more["steps"]), str(span.more["solver"]))
        assert key == (options.steps, options.solver)
        batches.setdefault(span.end_ns, set()).add(key)
    assert len(batches) < len(together), "nobody shared a batch"
    assert {len(keys) for keys in batches.values()} == {1}


@pytest.mark.parametrize("turn_ids", [[""] * 8, ["1", "1"]], ids=["none", "one for both"])
def test_requests_without_an_id_of_their_own_are_kept_apart(
    served: Served, client: TurnClient, turn_ids: list[str]
) -> None:
    """Public case C15, asked of `speak` directly, where no front door gives ids."""
    lines = [f"Number {number}. {TEXTS[0]}" for number in range(len(turn_ids))]

    def say(line: str, turn_id: str) -> audio.Floats:
        request = speak_request(line, turn_id="replaced", options=GREEDY)
        request.id = turn_id
        with asking(served.grpc_address) as stub:
            return speech(chunks_of(stub, request))

    alone = [speech(list(client.speak(line, options=GREEDY))) for line in lines]
    with ThreadPoolExecutor(len(lines)) as pool:
        assert_same(alone, list(pool.map(say, lines, turn_ids)))


def assert_same(alone: list[audio.Floats], together: list[audio.Floats]) -> None:
    for one, other in zip(alone, together, strict=True):
        assert one.size > 2_400
        assert one.shape == other.shape
        assert np.abs(one - other).max() < 1e-4


def test_chunks_join_to_what_is_spoken_in_one_piece(client: TurnClient) -> None:
    """Public case I3: the same samples, and no jump at a seam."""
    whole = TurnOptions(speech_temperature=0.0, seed=7, stream=False)
    chunked = list(client.speak(TEXTS[3], options=GREEDY))
    at_once = list(client.speak(TEXTS[3], options=whole))
    assert len(chunked) > 1
    assert len(at_once) == 1
    joined, whole_speech = speech(chunked), speech(at_once)
    assert joined.shape == whole_speech.shape
    assert np.abs(joined - whole_speech).max() < 1e-4
    jumps = np.abs(np.diff(joined))
    seams = np.cumsum([chunk.speech.size for chunk in chunked[:-1]]) - 1
    assert jumps[seams].max() <= np.delete(jumps, seams).max()


def test_every_chunk_tells_its_sample_rate(client: TurnClient) -> None:
    """Public case I7: seconds, and the tallest line of a spoken vowel, are those of that rate."""
    chunks = list(client.speak(TEXTS[3], options=GREEDY))
    assert {chunk.sample_rate_hz for chunk in chunks} == {24_000}
    sound = speech(chunks)
    line = spectral_peak_hz(sound, 24_000)
    assert 80 < line < 1000
    for rate_hz in (8_000, 16_000, 48_000):
        other = audio.resample(sound, 24_000, rate_hz)
        assert len(other) / rate_hz == pytest.approx(len(sound) / 24_000, abs=1e-3)
        assert spectral_peak_hz(other, rate_hz) == pytest.approx(line, abs=2)


def spectral_peak_hz(sound: audio.Floats, rate_hz: int) -> float:
    spectrum = np.abs(np.fft.rfft(sound * np.hanning(len(sound))))
    return float(spectrum.argmax()) * rate_hz / len(sound)


STORY = (
    "We open at nine in the morning and close at five in the evening, but on Sundays the shop "
    "stays closed. The large burger comes with fries and a drink, and you may ask for extra sauce. "
)


def ms_a_character(client: TurnClient, characters: int) -> float:
    """Of that much of the story over and over, spoken in parts as `client speak` does."""
    text = (STORY * 17)[:characters].rpartition(" ")[0] + "."
    sounds = [speech(list(client.speak(part, options=GREEDY))) for part in parts(text)]
    return 1000 * sum(map(len, sounds)) / 24_000 / len(text)


@pytest.mark.parametrize("characters", [42, 146, 374, pytest.param(3000, marks=pytest.mark.full)])
def test_no_length_of_text_is_squeezed(client: TurnClient, characters: int) -> None:
    """Public case H5, to the last sample."""
    one_sentence = ms_a_character(client, 103)
    assert ms_a_character(client, characters) == pytest.approx(one_sentence, rel=0.2)


@pytest.mark.parametrize(
    "line",
    ["", " ", "\n", "...", "。。。", "?!", "—", "👍", "\u200d", "عربى", "你好", "```\nx\n```"],
)
def test_text_with_nothing_to_say_makes_no_sound(client: TurnClient, line: str) -> None:
    """Public cases H1 and H3."""
    chunks = list(client.speak(line))
    assert [chunk.speech.size for chunk in chunks] == [0]


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "3",
        "Great 👍🏽!",
        "**bold** `x` # T",
        "https://example.com",
        "Hi 你好 عربى \u200d👍",
    ],
)
def test_short_text_is_spoken(client: TurnClient, line: str) -> None:
    """Public cases H2 and H3."""
    assert speech(list(client.speak(line))).size > 2_400


def test_text_beyond_the_limit_is_refused_with_the_limit(client: TurnClient) -> None:
    with pytest.raises(InvalidInput, match="at most"):
        list(client.speak("many words " * 200))


def test_voices_can_be_told_apart_and_share_a_server(client: TurnClient) -> None:
    """Public case C11: by the pitch of the same words, a fourth apart at least."""

    def say(voice: str) -> audio.Floats:
        options = TurnOptions(speech_temperature=0.0, seed=7, voice=voice)
        return speech(list(client.speak(TEXTS[0], options=options)))

    alone = {voice: say(voice) for voice in VOICES}
    with ThreadPoolExecutor(len(VOICES)) as pool:
        together = dict(zip(VOICES, pool.map(say, VOICES), strict=True))
    for voice in VOICES:
        assert np.abs(alone[voice] - together[voice]).max() < 1e-3
    alto, baritone = (pitch_hz(alone[voice]) for voice in VOICES)
    assert 0.5 < baritone / alto < 0.75


def test_an_unknown_voice_is_refused_with_the_known_ones(client: TurnClient) -> None:
    with pytest.raises(InvalidInput, match="'tenor' is unknown; accepted: alto, baritone"):
        list(client.speak(TEXTS[0], options=TurnOptions(voice="tenor")))


def test_without_a_solver_any_number_of_steps_is_spoken(client: TurnClient) -> None:
    for steps in (1, 3, 8):
        options = TurnOptions(speech_temperature=0.0, steps=steps)
        assert np.sqrt(np.mean(speech(list(client.speak(TEXTS[1], options=options))) ** 2)) > 1e-3
    with pytest.raises(InvalidInput, match="1, 2, 4 are accepted"):
        list(client.speak(TEXTS[1], options=TurnOptions(steps=3, solver="shortcut")))


@pytest.mark.parametrize(
    ("solver", "steps"),
    [(solver, steps) for solver in ("euler", "midpoint") for steps in (1, 2, 32)]
    + [("shortcut", steps) for steps in (1, 2, 4)],
)
def test_solver_and_steps_may_be_chosen(client: TurnClient, solver: str, steps: int) -> None:
    options = TurnOptions(speech_temperature=0.0, steps=steps, solver=solver)
    sound = speech(list(client.speak(TEXTS[1], options=options)))
    assert np.sqrt(np.mean(sound**2)) > 1e-3


def test_the_same_seed_gives_the_same_sound_and_another_one_another(client: TurnClient) -> None:
    def say(seed: int) -> audio.Floats:
        options = TurnOptions(speech_temperature=0.5, seed=seed)
        return speech(list(client.speak(TEXTS[0], options=options)))

    first, again, other = say(1), say(1), say(2)
    assert np.array_equal(first, again)
    assert not np.array_equal(first[: min(len(first), len(other))], other[: len(first)])
