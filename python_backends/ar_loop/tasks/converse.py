"""`think`: what was heard, and the history, to pieces of an answer."""

import json
from typing import Protocol

import numpy as np
from tokenizers import Tokenizer

from python_backends.ar_loop.answer import Answer
from python_backends.ar_loop.chat import Chat, ChatPrompt
from python_backends.ar_loop.sequence import Sequence
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.text import Detokenizer, PieceSplitter, StopStrings
from python_backends.bridge import ModelConfig, Request
from python_backends.bridge.options import MAX_SESSION_CHARS, Biases, Options
from python_backends.errors import InvalidInput
from python_backends.ordering.prompt import Utterance, parse_history, prompt_tokens, system_text
from python_backends.slot_engine.command import Sampling, Tokens


class Prompter(Protocol):
    """Makes prompts of conversations."""

    shared: int
    """Tokens that all of them begin with."""

    def tokens(self, history: list[Utterance], heard: str) -> list[int]:
        """The prompt; of the history as much as fits. InvalidInput when nothing does."""


class OrderPrompt:
    """See Prompter. With our menu, and the running order in every line."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.shared = len(self._encode(system_text()))

    def tokens(self, history: list[Utterance], heard: str) -> list[int]:
        """See Prompter."""
        return prompt_tokens(history, heard, self._encode)

    def _encode(self, prompt: str) -> list[int]:
        return list(self._tokenizer.encode(prompt, add_special_tokens=False).ids)


class Converse:
    """Prompts the LLM; an utterance in which nothing was heard is answered with one empty piece."""

    width = 1

    def __init__(
        self,
        tokenizer: Tokenizer,
        ends: frozenset[int],
        settings: LoopSettings,
        prompter: Prompter | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = tokenizer.get_vocab_size()
        self._ends = ends
        self._settings = settings
        self._prompter = prompter or OrderPrompt(tokenizer)
        self.shared = self._prompter.shared

    @classmethod
    def load(cls, config: ModelConfig, settings: LoopSettings) -> "Converse":
        """From the model's tokenizer.json and its step model's generation.json."""
        tokenizer = Tokenizer.from_file(str(config.artefact("tokenizer.json")))
        generation = config.artefact("generation.json", model=settings.step_model)
        prompter: Prompter | None = None
        if settings.prompt == "chat":
            room = settings.capacity - settings.max_new_tokens
            prompter = ChatPrompt(Chat.read(config.artefact("chat.json")), tokenizer, room)
        ends = frozenset(json.loads(generation.read_text())["end"])
        return cls(tokenizer, ends, settings, prompter)

    def open(self, request: Request) -> list[Sequence]:
        """See Task."""
        self._check_biases(request.options.logit_bias)
        heard = request.text("HEARD").strip()
        answer = Answer(request, heard)
        if not heard:
            answer.emit("", last=True, status="no_speech")
            request.finish()
            return []
        history = parse_history(request.text("HISTORY", ""))
        prompt = self._prompter.tokens(history, heard)
        return [Reply(answer, np.array(prompt, np.int64), self._limit(request), self)]

    def abandon(self, turn: str) -> None:
        """See Task: nothing is held back here, one request makes all pieces of a turn."""

    def after_step(self, members: int) -> None:
        """See Task."""

    def decode(self, ids: list[int]) -> str:
        """Text of token ids, special tokens left out."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def is_end(self, token: int) -> bool:
        """The token ends the answer."""
        return token in self._ends

    def _check_biases(self, biases: Biases) -> None:
        for token, _ in biases:
            if token >= self._vocabulary:
                raise InvalidInput(
                    f"logit_bias names token {token}; 0 to {self._vocabulary - 1} are known"
                )

    def _limit(self, request: Request) -> int:
        return min(request.options.max_tokens, self._settings.max_new_tokens)


class Reply(Sequence):
    """One answer being decoded; a piece leaves as soon as its clause is complete."""

    def __init__(self, answer: Answer, prompt: Tokens, limit: int, task: Converse) -> None:
        options = answer.request.options
        super().__init__(answer.request, prompt, limit, _sampling(options))
        self.session = _session(answer.request)
        self.shared = task.shared
        self._drawn: list[int] = []
        self._answer = answer
        self._task = task
        self._text = Detokenizer(task.decode)
        self._stops = StopStrings(options.stop)
        self._reads_ahead = bool(options.stop)
        self._fresh = ""
        """Text that became certain with the token of the step that has landed."""

        self._whole = ""
        self._pieces = PieceSplitter()
        self._begun = False

    def advance(self, token: Tokens) -> bool:
        """See Sequence. Text is only looked at here where it may end the answer."""
        self.last = token[0]
        self._drawn.append(int(token[0]))
        if self._reads_ahead:
            self._read(int(token[0]))
        return self._stops.found or self._task.is_end(int(token[0]))

    def written(self, length: int) -> list[int]:
        """See Sequence."""
        return [*self.prompt.tolist(), *self._drawn][:length]

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        """See Sequence."""
        if not self._begun:
            self._begun = True
            self._answer.started()
        if not self._reads_ahead:
            self._read(int(token[0]))
        self._say(self._fresh)

    def close(self, reason: str) -> None:
        """See Sequence."""
        self._say(self._stops.add(self._text.rest()) + self._stops.rest())
        rest = self._pieces.rest() if self.request.options.stream else self._whole.strip()
        self._answer.emit(rest, last=True, status="stop" if self._stops.found else reason)
        self.request.finish()

    def _read(self, token: int) -> None:
        is_text = not self._task.is_end(token)
        self._fresh = self._stops.add(self._text.add(token)) if is_text else ""

    def _say(self, fresh: str) -> None:
        if not self.request.options.stream:
            self._whole += fresh
            return
        for piece in self._pieces.add(fresh):
            self._answer.emit(piece, last=False)


def _session(request: Request) -> str:
    return request.text("SESSION_ID", "", most=MAX_SESSION_CHARS)


def _sampling(options: Options) -> Sampling:
    return Sampling(
        temperature=options.temperature,
        seed=options.seed,
        top_k=options.top_k,
        top_p=options.top_p,
        repetition_penalty=options.repetition_penalty,
        bias=options.logit_bias,
    )
