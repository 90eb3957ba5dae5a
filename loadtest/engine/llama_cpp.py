"""llama.cpp (the wheel `cyllama`), Q8_0: continuous batching by its batch interface.

A decode is timed alone: the batch is made before, no logits are copied, no token is drawn; all of
that is in our own step. The KV cache is its default, with room for `capacity` tokens a sequence.
"""

import importlib
import os
import time
from pathlib import Path
from typing import Any

from loadtest.engine.bare import FIRST_TOKEN
from loadtest.engine.weights import gguf_path

Q8_0 = 7
"""LLAMA_FTYPE_MOSTLY_Q8_0 of llama.h."""

MAX_BATCH = 512


class LlamaCpp:
    """One context, one thread, `slots` sequences. See Contestant."""

    def __init__(self, folder: Path, slots: int, capacity: int) -> None:
        self._api: Any = importlib.import_module("cyllama.llama.llama_cpp")
        self._api.disable_logging()
        self._api.ggml_backend_load_all()
        self._slots = slots
        self._model = self._api.LlamaModel(str(self._quantized(folder)))
        self._context = self._api.LlamaContext(self._model, self._parameters(capacity))
        self._batch = self._api.LlamaBatch(n_tokens=MAX_BATCH, embd=0, n_seq_max=1)

    def fill(self, context: int) -> None:
        """See Contestant; copies are made by the next decode, so one is made here."""
        self._context.memory_seq_rm(-1, -1, -1)
        self._prefill(context)
        for row in range(1, self._slots):
            self._context.memory_seq_cp(0, row, -1, -1)
        self._step(self._slots, context)

    def steps(self, rows: int, context: int, count: int) -> list[float]:
        """See Contestant."""
        for row in range(self._slots):
            self._context.memory_seq_rm(row, context, -1)
        return [self._step(rows, context + number) for number in range(count)]

    def prefill(self, tokens: int) -> float:
        """See Contestant."""
        self._context.memory_seq_rm(0, -1, -1)
        return self._prefill(tokens)

    def close(self) -> None:
        """See Contestant."""
        self._context.close()
        self._model.close()

    def _step(self, rows: int, context: int) -> float:
        self._batch.clear()
        for row in range(rows):
            self._batch.add(FIRST_TOKEN + row, context, [row], True)
        return self._timed()

    def _prefill(self, tokens: int) -> float:
        self._batch.clear()
        for position in range(tokens):
            self._batch.add(FIRST_TOKEN + position, position, [0], position == tokens - 1)
        return self._timed()

    def _timed(self) -> float:
        began = time.perf_counter()
        self._context.decode(self._batch)
        self._context.synchronize()
        return 1e3 * (time.perf_counter() - began)

    def _parameters(self, capacity: int) -> Any:
        parameters = self._api.LlamaContextParams()
        parameters.n_seq_max = self._slots
        parameters.n_ctx = self._slots * capacity
        parameters.n_batch = MAX_BATCH
        parameters.n_threads = parameters.n_threads_batch = 1
        return parameters

    def _quantized(self, folder: Path) -> Path:
        """The GGUF file in 8 bits, made once; int8 is what our graph has."""
        target = folder / f"{gguf_path().name.split('.')[0]}.Q8_0.gguf"
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{target.name}.partial")
            how = self._api.LlamaModelQuantizeParams()
            how.ftype, how.allow_requantize, how.nthread = Q8_0, True, 1
            self._api.model_quantize(str(gguf_path()), str(partial), how)
            os.replace(partial, target)
        return target
