"""The transcription task: windows joined in order, doubtful ones heard again, bad input alone."""

import random
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from python_backends.ar_loop.loop import DecodeLoop
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.repetition import COPIES, LONGEST, SPAN, Said
from python_backends.ar_loop.tasks.transcribe import Transcribe, is_silence
from python_backends.bridge import Arrived, Closed, Inbox, Request
from python_backends.slot_engine.command import Command, Drawn, Result
from tests import fakes

WORDS = ["two", "burgers", "please", "doubtful", "again", "..."]
END, DOUBTFUL, AGAIN = len(WORDS), WORDS.index("doubtful"), WORDS.index("again")
SETTINGS = LoopSettings(
    task="transcribe",
    step_model="step",
    engine="in_process",
    slots=2,
    capacity=64,
    prefill_chunk=4,
    max_new_tokens=63,
    max_waiting=8,
    encode_model="encode.v2",
)


class EchoEngine:
    """Says the word that a row's states are, then ends; "doubtful" is improbable, "again" is said
    for ever."""

    def __init__(self) -> None:
        self.heard: dict[int, int] = {}
        self.no_speech = 0.0
        self.steps = 0

    def run(self, command: Command) -> Result:
        prefill = decode = None
        for move in command.moves:
            self.heard[move.target] = self.heard[move.source]
        if (part := command.prefill) is not None:
            self.heard[part.row] = int(part.context["HIDDEN"][0, 0])
            prefill = self._drawn([self.heard[part.row]], [part.row])
        if (step := command.decode) is not None:
            rows = list(range(len(step.tokens)))
            self.steps += 1
            decode = self._drawn([self._after(row) for row in rows], rows)
        return Result(prefill, decode, self.no_speech)

    def _after(self, row: int) -> int:
        return AGAIN if self.heard[row] == AGAIN else END

    def _drawn(self, tokens: list[int], rows: list[int]) -> Drawn:
        scores = [-2.0 if self.heard[row] == DOUBTFUL else -0.1 for row in rows]
        return Drawn(np.array(tokens, np.int64)[:, None], np.array(scores, np.float32))


class Encoder:
    """The model `encode`: at full length, every window says `word`."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.lengths: list[int] = []

    def __call__(
        self, model: str, inputs: dict[str, NDArray[Any]], outputs: list[str], **more: Any
    ) -> dict[str, NDArray[Any]]:
        assert (model, more["parameters"]) == ("encode.v2", {"min_frames": 3000})
        self.lengths.append(inputs["AUDIO"].shape[1])
        return {"HIDDEN": states(WORDS.index(self.word), frames=1500)}


def states(*words: int, frames: int = 750) -> NDArray[np.float32]:
    """HIDDEN [1, W, F, 384]."""
    column = np.array(words, np.float32)[None, :, None, None]
    return np.broadcast_to(column, (1, len(words), frames, 384)).copy()


def windows(*words: str, sound: bool = True, **more: NDArray[Any]) -> fakes.InferenceRequest:
    """A request of one window a word, each a second long; "" is silent."""
    seconds = np.arange(len(words) + 1, dtype=np.int32) * 1000
    inputs = {
        "HIDDEN": states(*(WORDS.index(word) if word else 0 for word in words)),
        "VALID": np.array([[750 if word else 0 for word in words]], np.int32),
        "SPAN_MS": np.stack([seconds[:-1], seconds[1:]], axis=1)[None],
    }
    if sound:
        inputs["AUDIO"] = np.zeros((1, 16_000 * len(words)), np.float32)
    return fakes.arriving({**inputs, **more})


def task_of(settings: LoopSettings, encoder: Encoder, prompt: int = 2) -> Transcribe:
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, "two"))
    return Transcribe(tokenizer, {"prompt": [0] * prompt, "end": END}, settings, encoder)


def served(
    *requests: fakes.InferenceRequest,
    at_full_length: str = "please",
    engine: EchoEngine | None = None,
) -> Encoder:
    """Serve all of them at once, to their ends."""
    encoder, inbox = Encoder(at_full_length), Inbox()
    task = task_of(SETTINGS, encoder)
    for native in requests:
        inbox.put(Arrived(Request(native, "asr_decode", lambda _: None)))
    thread = threading.Thread(
        target=DecodeLoop(task, [engine or EchoEngine()], SETTINGS).run, args=[inbox]
    )
    thread.start()
    for native in requests:
        native.sender.wait()
    inbox.put(Closed())
    thread.join()
    return encoder


def heard(native: fakes.InferenceRequest) -> tuple[str, str]:
    (values,) = native.sender.values()
    return values["HEARD"][0, 0].decode(), values["STATUS"][0, 0].decode()


def test_windows_are_joined_in_order_and_silent_ones_left_out() -> None:
    """Public case C7."""
    request = windows("two", "", "burgers", "please")
    assert served(request).lengths == []
    assert heard(request) == ("two burgers please", "stop")


def test_silence_alone_is_answered_at_once() -> None:
    request = windows("", "")
    served(request)
    assert heard(request) == ("", "no_speech")


def test_a_doubtful_window_is_heard_again_at_full_length() -> None:
    request = windows("two", "doubtful")
    assert served(request).lengths == [16_000]
    assert heard(request) == ("two please", "stop")


def test_two_doubtful_windows_of_one_request_are_both_heard_again() -> None:
    request = windows("doubtful", "two", "doubtful")
    assert len(served(request).lengths) == 2
    assert heard(request) == ("please two please", "stop")


@pytest.mark.parametrize(
    "wrong",
    [
        {"VALID": np.array([[751]], np.int32)},
        {"VALID": np.array([[750, 750]], np.int32)},
        {"VALID": np.array([[1600]], np.int32), "HIDDEN": states(0, frames=1600)},
        {"SPAN_MS": np.zeros((1, 0, 2), np.int32)},
        {"HIDDEN": np.full((1, 1, 750, 384), np.nan, np.float32)},
    ],
    ids=["more states than given", "more windows", "longer than a window", "no span", "NaN"],
)
def test_windows_that_do_not_fit_fail_alone(wrong: dict[str, NDArray[Any]]) -> None:
    """Public cases B6 and C9."""
    well, ill = windows("two", "burgers"), windows("two", **wrong)
    served(well, ill)
    assert "code=INVALID_INPUT" in ill.sender.error()
    assert heard(well) == ("two burgers", "stop")


def test_a_loop_is_left_as_soon_as_it_is_one_and_its_window_heard_again() -> None:
    """Public case B1."""
    request, engine = windows("two", "again"), EchoEngine()
    assert served(request, engine=engine).lengths == [16_000]
    assert heard(request) == ("two please", "stop")
    assert engine.steps < SPAN + 4 < SETTINGS.max_new_tokens


def test_a_loop_that_full_length_does_not_end_is_said_once() -> None:
    request = windows("two", "again", "burgers")
    assert served(request, at_full_length="again").lengths == [16_000]
    assert heard(request) == ("two again burgers", "repetition")


def test_a_loop_without_sound_to_hear_again_is_said_once() -> None:
    request = windows("again", sound=False)
    assert served(request).lengths == []
    assert heard(request) == ("again", "repetition")


@pytest.mark.parametrize(
    ("capacity", "most"), [(64, 63), (3, 2), (448, 447)], ids=["some", "least", "Whisper's"]
)
def test_a_text_that_would_not_fit_its_row_is_refused_at_load(capacity: int, most: int) -> None:
    """Beyond the last position there is nothing to look up; it would show in a loop alone."""
    fits = replace(SETTINGS, capacity=capacity, max_new_tokens=most)
    assert task_of(fits, Encoder("two")).limit == most
    for wrong in (0, -1, most + 1, 2048):
        with pytest.raises(ValueError, match=f"max_new_tokens is {wrong}; .* room for {most}"):
            task_of(replace(fits, max_new_tokens=wrong), Encoder("two"))


@pytest.mark.parametrize("most", [0, 1, 448, 2048])
@pytest.mark.parametrize("prompt", [0, 223, 224, 225, 448, 2000])
def test_a_prompt_and_its_text_fit_448_positions_or_are_refused(prompt: int, most: int) -> None:
    """Public case B9."""
    settings = replace(SETTINGS, capacity=448, prefill_chunk=512, max_new_tokens=most)
    if 0 < prompt < 448 and 0 < most <= 448 - prompt + 1:
        assert len(task_of(settings, Encoder("two"), prompt).prompt) == prompt
    else:
        with pytest.raises(ValueError, match=f"max_new_tokens is {most}|prompt has {prompt} "):
            task_of(settings, Encoder("two"), prompt)


@pytest.mark.parametrize("capacity", [0, 1, 2])
def test_rows_without_room_behind_the_prompt_are_refused_at_load(capacity: int) -> None:
    with pytest.raises(ValueError, match="a prompt of 2 tokens"):
        task_of(replace(SETTINGS, capacity=capacity, max_new_tokens=1), Encoder("two"))


def test_a_prompt_of_several_chunks_is_refused_at_load() -> None:
    """Silence is told behind the first token, and reported with the last chunk."""
    with pytest.raises(ValueError, match="chunk 1; the prompt has 2 tokens"):
        task_of(replace(SETTINGS, prefill_chunk=1), Encoder("two"))
    with pytest.raises(ValueError, match="chunk 1; the prompt has 2 tokens"):
        task_of(replace(SETTINGS, lone_chunk=1), Encoder("two"))
    with pytest.raises(ValueError, match="join_tokens"):
        task_of(replace(SETTINGS, join_tokens=8), Encoder("two"))


def test_a_loop_over_noise_is_silence_at_once() -> None:
    request, engine = windows("again"), EchoEngine()
    engine.no_speech = 0.95
    assert served(request, engine=engine).lengths == []
    assert heard(request) == ("", "no_speech")


def test_what_may_be_silence_is_heard_again_before_that_is_believed() -> None:
    request, engine = windows("doubtful"), EchoEngine()
    engine.no_speech = 0.7
    assert served(request, at_full_length="doubtful", engine=engine).lengths == [16_000]
    assert heard(request) == ("", "no_speech")


def test_a_text_without_words_is_none() -> None:
    request = windows("two", "...")
    served(request)
    assert heard(request) == ("two", "stop")


@pytest.mark.parametrize(
    ("no_speech", "mean_score", "looped", "silent"),
    [
        (0.05, -1.5, False, "never"),
        (0.05, -0.1, True, "never"),
        (0.7, -0.9, False, "never"),
        (0.7, -1.1, False, "in the end"),
        (0.7, -0.1, True, "in the end"),
        (0.95, -0.9, False, "at once"),
        (0.95, -0.1, False, "never"),
        (0.95, -0.1, True, "at once"),
    ],
)
def test_silence_is_believed_the_more_the_less_the_words_are(
    no_speech: float, mean_score: float, looped: bool, silent: str
) -> None:
    def believed(final: bool) -> bool:
        return is_silence(no_speech, mean_score, looped=looped, final=final)

    assert believed(False) == (silent == "at once")
    assert believed(True) == (silent != "never")


def said(tokens: list[int]) -> Said:
    every = Said()
    for token in tokens:
        every.add(token)
    return every


@pytest.mark.parametrize("period", [1, 2, 3, 7, 8, 9, 20, LONGEST])
def test_a_phrase_said_over_and_over_is_a_loop_of_its_length(period: int) -> None:
    before, phrase = [900, 901, 902], list(range(period))
    needed = max(COPIES * period, SPAN)
    tokens = [*before, *(phrase * needed)[:needed]]
    assert said(tokens).period == period
    assert said(tokens).once == [*before, *phrase]
    assert said(tokens[:-1]).period == 0
    assert said(tokens[:-1]).once == tokens[:-1]


def test_the_round_that_a_loop_is_left_in_counts_for_nothing() -> None:
    tokens = [900, *[1, 2, 3, 4, 5] * 9, 1, 2]
    assert said(tokens).once == [900, 1, 2, 3, 4, 5]


def test_a_loop_is_found_exactly_where_its_definition_says() -> None:
    draw = random.Random(0)
    found = 0
    for _ in range(300):
        period = draw.randint(1, 12)
        tokens = [draw.randrange(3) for _ in range(draw.randint(0, 20))]
        tokens += [draw.randrange(3) for _ in range(period)] * draw.randint(1, 40)
        tokens += [draw.randrange(3) for _ in range(draw.randint(0, 2))]
        expected = min(filter(lambda p: loops(tokens, p), range(1, LONGEST + 1)), default=0)
        assert said(tokens).period == expected
        found += expected > 0
    assert 30 < found < 270


def loops(tokens: list[int], period: int) -> bool:
    """The last 32 tokens, or four rounds where these are more, repeat with this period."""
    end = tokens[-max(32, 4 * period) :]
    return len(end) >= max(32, 4 * period) and end[period:] == end[:-period]
