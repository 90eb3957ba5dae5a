"""Conversations with a model as it is served: its int8 step graph, the engine and the prompt."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from build.llama.model import Llama
from build.smollm import weights
from build.smollm.export import CAPACITY, save_step
from python_backends.ordering.prompt import Utterance, prompt_tokens
from python_backends.slot_engine.command import (
    GREEDY,
    MAX_CHUNK,
    RESTART,
    Command,
    Decode,
    Prefill,
    Result,
)
from python_backends.slot_engine.engine import SlotPoolEngine

MOST_TOKENS = 64
"""Of an answer, as `think` has it."""


def encode(text: str) -> list[int]:
    """Token ids of a prompt, special tokens included."""
    return list(weights.tokenizer().encode(text, add_special_tokens=False).ids)


class Served:
    """A row of the engine's pool for each conversation; all of them are decoded together."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._engine = SlotPoolEngine(folder, slots=rows, capacity=CAPACITY)
        self._number = RESTART
        self._known: list[list[int]] = [[] for _ in range(rows)]

    @classmethod
    def of(cls, model: Llama, rows: int) -> "Served":
        """Of PyTorch weights, exported for this."""
        with tempfile.TemporaryDirectory(prefix="tristage-orders-") as folder:
            save_step(model, Path(folder) / "model.onnx")
            (Path(folder) / "generation.json").write_text(json.dumps({}))
            return cls(Path(folder), rows)

    def greedy(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """The tokens of each answer, the n-th of the n-th row, without the one that ends it."""
        last = [self._prefilled(row, list(prompt)) for row, prompt in enumerate(prompts)]
        said: list[list[int]] = [[] for _ in prompts]
        end, rows = weights.end_token(), len(prompts)
        going = [True] * rows
        for step in range(MOST_TOKENS):
            for row, token in enumerate(last):
                going[row] = going[row] and token != end
                if going[row]:
                    said[row].append(token)
            if not any(going):
                break
            starts = np.array([len(prompt) + step for prompt in prompts], np.int64)
            decode = Decode(np.array(last, np.int64), starts, (GREEDY,) * rows)
            drawn = self._run(Command(self._number, decode=decode)).decode
            assert drawn is not None
            last = drawn.tokens[:, 0].tolist()
        return said

    def _prefilled(self, row: int, prompt: list[int]) -> int:
        """The first token of an answer; what the row's last prompt began with is not computed."""
        pairs = enumerate(zip(self._known[row], prompt, strict=False))
        alike = min(len(self._known[row]), len(prompt) - 2)
        kept = min(alike, next((at for at, (old, new) in pairs if old != new), alike))
        self._known[row] = prompt
        drawn = None
        for at in range(kept, len(prompt), MAX_CHUNK):
            tokens = np.array(prompt[at : at + MAX_CHUNK], np.int64)
            part = Prefill(row, at, tokens, is_last=at + MAX_CHUNK >= len(prompt))
            drawn = self._run(Command(self._number, prefill=part)).prefill
        assert drawn is not None
        return int(drawn.tokens[0, 0])

    def _run(self, command: Command) -> Result:
        self._number += 1
        return self._engine.run(command)


def answers(
    served: Served, conversations: Sequence[Sequence[str]], told: Callable[[str], None]
) -> list[list[str]]:
    """The answers to conversations of equal length; a model's own earlier ones are its history.

    `told` is called with every answer.
    """
    histories: list[list[Utterance]] = [[] for _ in conversations]
    found: list[list[str]] = [[] for _ in conversations]
    for lines in zip(*conversations, strict=True):
        pairs = zip(histories, lines, strict=True)
        prompts = [prompt_tokens(history, heard, encode) for history, heard in pairs]
        for row, tokens in enumerate(served.greedy(prompts)):
            answer = weights.tokenizer().decode(tokens).strip()
            told(answer)
            found[row].append(answer)
            histories[row] += [Utterance("user", lines[row]), Utterance("assistant", answer)]
    return found
