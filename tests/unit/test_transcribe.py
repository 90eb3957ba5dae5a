"""The transcription task: windows joined in order, doubtful ones heard again, bad input alone."""

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from python_backends.ar_loop.loop import DecodeLoop
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.transcribe import Transcribe
from python_backends.bridge import Arrived, Closed, Inbox, Request
from python_backends.slot_engine.command import Command, Drawn, Result
from tests import fakes

WORDS = ["two", "burgers", "please", "doubtful"]
END, DOUBTFUL = len(WORDS), WORDS.index("doubtful")
SETTINGS = LoopSettings(
    task="transcribe",
    step_model="step",
    engine="in_process",
    slots=2,
    capacity=32,
    prefill_chunk=4,
    max_new_tokens=8,
    max_waiting=8,
)


class EchoEngine:
    """Says the word that a row's states are, then ends; "doubtful" is improbable."""

    def __init__(self) -> None:
        self.heard: dict[int, int] = {}

    def run(self, command: Command) -> Result:
        prefill = decode = None
        for move in command.moves:
            self.heard[move.target] = self.heard[move.source]
        if (part := command.prefill) is not None:
            self.heard[part.row] = int(part.context["HIDDEN"][0, 0])
            prefill = self._drawn([self.heard[part.row]], [part.row])
        if (step := command.decode) is not None:
            rows = list(range(len(step.tokens)))
            decode = self._drawn([END] * len(rows), rows)
        return Result(prefill, decode)

    def _drawn(self, tokens: list[int], rows: list[int]) -> Drawn:
        scores = [-2.0 if self.heard[row] == DOUBTFUL else -0.1 for row in rows]
        return Drawn(np.array(tokens, np.int64)[:, None], np.array(scores, np.float32))


class Encoder:
    """The model `encode`: at full length, every window says "please"."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def __call__(
        self, model: str, inputs: dict[str, NDArray[Any]], outputs: list[str], **more: Any
    ) -> dict[str, NDArray[Any]]:
        assert (model, more["parameters"]) == ("encode", {"min_frames": 3000})
        self.lengths.append(inputs["AUDIO"].shape[1])
        return {"HIDDEN": states(WORDS.index("please"), frames=1500)}


def states(*words: int, frames: int = 750) -> NDArray[np.float32]:
    """HIDDEN [1, W, F, 384]."""
    column = np.array(words, np.float32)[None, :, None, None]
    return np.broadcast_to(column, (1, len(words), frames, 384)).copy()


def windows(*words: str, **more: NDArray[Any]) -> fakes.InferenceRequest:
    """A request of one window a word, each a second long; "" is silent."""
    seconds = np.arange(len(words) + 1, dtype=np.int32) * 1000
    inputs = {
        "HIDDEN": states(*(WORDS.index(word) if word else 0 for word in words)),
        "VALID": np.array([[750 if word else 0 for word in words]], np.int32),
        "SPAN_MS": np.stack([seconds[:-1], seconds[1:]], axis=1)[None],
        "AUDIO": np.zeros((1, 16_000 * len(words)), np.float32),
    }
    return fakes.arriving({**inputs, **more})


def served(*requests: fakes.InferenceRequest) -> Encoder:
    """Serve all of them at once, to their ends."""
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, "two"))
    encoder, inbox = Encoder(), Inbox()
    generation = {"prompt": [0, 0], "end": END}
    task = Transcribe(tokenizer, generation, SETTINGS, encoder)
    for native in requests:
        inbox.put(Arrived(Request(native, "asr_decode", lambda _: None)))
    thread = threading.Thread(target=DecodeLoop(task, EchoEngine(), SETTINGS).run, args=[inbox])
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
    ],
    ids=["more states than given", "more windows", "longer than a window", "no span"],
)
def test_windows_that_do_not_fit_fail_alone(wrong: dict[str, NDArray[Any]]) -> None:
    well, ill = windows("two", "burgers"), windows("two", **wrong)
    served(well, ill)
    assert "code=INVALID_INPUT" in ill.sender.error()
    assert heard(well) == ("two burgers", "stop")
