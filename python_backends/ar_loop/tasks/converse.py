"""`think`: what was heard, and the history, to pieces of an answer."""

import json

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from python_backends.ar_loop.prompt import parse_history, prompt_tokens
from python_backends.ar_loop.sequence import Sequence
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.text import Detokenizer, PieceSplitter
from python_backends.bridge import ModelConfig, Request
from python_backends.bridge.events import now_ns
from python_backends.bridge.tensors import text
from python_backends.pieces import LAST_PIECE, NO_SOUND
from python_backends.slot_engine.command import Sampling, Tokens


class Converse:
    """Prompts the LLM; an utterance in which nothing was heard is answered with one empty piece."""

    width = 1

    def __init__(self, tokenizer: Tokenizer, ends: frozenset[int], settings: LoopSettings) -> None:
        self._tokenizer = tokenizer
        self._ends = ends
        self._settings = settings

    @classmethod
    def load(cls, config: ModelConfig, settings: LoopSettings) -> "Converse":
        """From the model's tokenizer.json and its step model's generation.json."""
        tokenizer = Tokenizer.from_file(str(config.artefact("tokenizer.json")))
        generation = config.artefact("generation.json", model=settings.step_model)
        return cls(tokenizer, frozenset(json.loads(generation.read_text())["end"]), settings)

    def open(self, request: Request) -> list[Sequence]:
        """See Task."""
        heard = request.text("HEARD").strip()
        answer = Answer(request, heard)
        if not heard:
            answer.emit("", last=True, status="no_speech")
            request.finish()
            return []
        history = parse_history(request.text("HISTORY", ""))
        prompt = prompt_tokens(history, heard, self._encode)
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

    def _encode(self, prompt: str) -> list[int]:
        return list(self._tokenizer.encode(prompt, add_special_tokens=False).ids)

    def _limit(self, request: Request) -> int:
        return min(request.options.max_tokens, self._settings.max_new_tokens)


class Answer:
    """The responses of one `think` request."""

    def __init__(self, request: Request, heard: str) -> None:
        self.request = request
        self._heard = heard
        self._pieces = 0
        self._since = request.arrived_ns

    def started(self) -> None:
        """The first token is there: what came before it was queueing and prefill."""
        self._since = now_ns()

    def emit(self, piece: str, *, last: bool, status: str = "") -> None:
        """Send one piece. HEARD goes with the first, STATUS with the last."""
        flags = (LAST_PIECE if last else 0) | (0 if piece else NO_SOUND)
        self.request.send(
            {
                "PIECE": np.array([[self._pieces, 0, flags]], np.int32),
                "TEXT": text(piece),
                "HEARD": text(self._heard if self._pieces == 0 else ""),
                "STATUS": text(status),
                "EVENTS": self._events(),
            }
        )
        self._pieces += 1

    def _events(self) -> NDArray[np.object_]:
        now, request = now_ns(), self.request
        first = request.span("first_token", request.arrived_ns, self._since, piece=self._pieces)
        own = request.span("compute", self._since, now, piece=self._pieces)
        self._since = now
        return request.with_events(*([first, own] if self._pieces == 0 else [own]))


class Reply(Sequence):
    """One answer being decoded; a piece leaves as soon as its clause is complete."""

    def __init__(self, answer: Answer, prompt: Tokens, limit: int, task: Converse) -> None:
        options = answer.request.options
        super().__init__(answer.request, prompt, limit, Sampling(options.temperature, options.seed))
        self._answer = answer
        self._task = task
        self._text = Detokenizer(task.decode)
        self._pieces = PieceSplitter()
        self._begun = False

    def advance(self, token: Tokens) -> bool:
        """See Sequence."""
        self.last = token[0]
        return self._task.is_end(int(token[0]))

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        """See Sequence."""
        if not self._begun:
            self._begun = True
            self._answer.started()
        if self._task.is_end(int(token[0])):
            return
        fresh = self._text.add(int(token[0]))
        if self.request.options.stream:
            for piece in self._pieces.add(fresh):
                self._answer.emit(piece, last=False)

    def close(self, reason: str) -> None:
        """See Sequence."""
        rest = self._text.rest()
        if self.request.options.stream:
            for piece in self._pieces.add(rest):
                self._answer.emit(piece, last=False)
            rest = self._pieces.rest()
        else:
            rest = self._text.text.strip()
        self._answer.emit(rest, last=True, status=reason)
        self.request.finish()
