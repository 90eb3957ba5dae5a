"""The whole AR loop on the LLM's graph, driven by hand."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from python_backends.ar_loop.loop import DecodeLoop
from python_backends.ar_loop.sequence import Sequence
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import Request
from python_backends.ordering.prompt import Utterance, prompt_tokens
from python_backends.scheduling.prefixes import Prefixes
from python_backends.slot_engine.command import GREEDY, Sampling, Tokens
from python_backends.slot_engine.engine import SlotPoolEngine
from python_backends.slot_engine.shelf import Shelf
from tests import fakes

REPOSITORY = Path(__file__).parents[2] / "model_repository"
STEP = REPOSITORY / "think_step" / "1"
SETTINGS = LoopSettings(
    task="converse",
    step_model="think_step",
    engine="in_process",
    slots=3,
    capacity=768,
    prefill_chunk=8,
    lone_chunk=64,
    max_new_tokens=20,
    max_waiting=64,
    engines=2,
)


class Spoken(Sequence):
    """Collects token ids up to the end token."""

    def __init__(self, request: Request, prompt: list[int], how: Sampling, end: int) -> None:
        super().__init__(request, np.array(prompt, np.int64), SETTINGS.max_new_tokens, how)
        self.session = request.turn.split("/")[0]
        self.said: list[int] = []
        self._end = end

    def advance(self, token: Tokens) -> bool:
        self.last = token[0]
        self.said.append(int(token[0]))
        return self.said[-1] == self._end

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        pass

    def written(self, length: int) -> list[int]:
        return [*self.prompt.tolist(), *self.said][:length]

    def close(self, reason: str) -> None:
        self.request.finish({"SAID": np.array([self.said], np.int64)})


class Speak:
    width = 1

    def __init__(self, end: int) -> None:
        self._end = end
        self.how = GREEDY

    def open(self, request: Request) -> list[Sequence]:
        return [Spoken(request, request.required("PROMPT")[0].tolist(), self.how, self._end)]

    def abandon(self, turn: str) -> None:
        pass

    def after_step(self, members: int) -> None:
        pass


class Talk:
    """A loop on real engines, driven by hand; a turn "a/1" is of session "a"."""

    def __init__(self, engines: list[SlotPoolEngine], end: int, session_bytes: int = 0) -> None:
        prefixes = Prefixes(session_bytes, engines[0].pools.token_bytes)
        self.task = Speak(end)
        settings = replace(SETTINGS, slots=engines[0].slots)
        self.loop = DecodeLoop(self.task, engines, settings, prefixes=prefixes)
        self.restored: list[int] = []

    def ask(
        self, turn: str, prompt: list[int], how: Sampling = GREEDY
    ) -> fakes.InferenceResponseSender:
        self.task.how = how
        native = fakes.arriving({"PROMPT": np.array([prompt], np.int64)}, request_id=turn)
        self.loop._open(Request(native, "think", lambda _: None))
        return native.sender

    def step(self) -> None:
        for lane in self.loop._lanes:
            if lane.flight is not None:
                lane.flight.done.exception()
        self.loop.step()
        self.loop.check_integrity()
        chunks = [lane.flight.plan.chunk for lane in self.loop._lanes if lane.flight]
        self.restored += [one.start for one in chunks if one and one.is_first and one.start]

    def run(self) -> None:
        while self.loop.busy:
            self.step()


def said(sender: fakes.InferenceResponseSender) -> list[int]:
    return [int(token) for token in sender.values()[0]["SAID"][0]]


def engines(count: int, slots: int = 3) -> list[SlotPoolEngine]:
    """Engines that share a store of prefixes."""
    shelf = Shelf()
    return [SlotPoolEngine(STEP, slots=slots, capacity=768, shelf=shelf) for _ in range(count)]


def end_token() -> int:
    return int(json.loads((STEP / "generation.json").read_text())["end"][0])


def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(REPOSITORY / "think" / "1" / "tokenizer.json"))


class Conversation:
    """Prompts of one caller, turn after turn, each with what was said before."""

    def __init__(self, tokenizer: Tokenizer, heard: list[str]) -> None:
        self._tokenizer = tokenizer
        self._heard = iter(heard)
        self._history: list[Utterance] = []

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        self._asked = next(self._heard)
        return prompt_tokens(self._history, self._asked, self._encode)

    def answered(self, tokens: list[int]) -> None:
        answer = self._tokenizer.decode(tokens, skip_special_tokens=True)
        self._history += [Utterance("user", self._asked), Utterance("assistant", answer)]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)
