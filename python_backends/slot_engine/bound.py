"""A step graph bound to its memory: every address fixed once, so that a step binds nothing.

ONNX Runtime gets past and present as the same memory. What differs between models is read from the
graph: pools, numbers per token, noise that it draws with, context, an optional head.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from python_backends.errors import StageFailed
from python_backends.slot_engine.command import MAX_CHUNK
from python_backends.slot_engine.pools import HostMemory, Pools, pool_shapes, present_of


def open_session(path: Path, threads: int) -> ort.InferenceSession:
    """A CPU session; spinning off, since other stages share the cores."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class BoundGraph:
    """A session, its pools of `slots` rows, and the buffers it is fed from and answers into.

    `ids`, `starts`, `noise` are read by decode steps of rows 0..n-1; those named chunk_ by the
    prompt of one row; `logits` or `next` of a row are written by both. `context` names the pools
    that are not KV; a symbolic length of them may be any of `context_widths`.
    """

    def __init__(
        self,
        path: Path,
        *,
        slots: int,
        capacity: int,
        threads: int,
        context: Sequence[str],
        context_widths: Sequence[int],
    ) -> None:
        self._session = open_session(path, threads)
        self._shapes = {node.name: node.shape for node in self._session.get_inputs()}
        self._slots = slots
        self.width = self._shapes["ids"][2] if len(self._shapes["ids"]) == 3 else 1
        kv, sets = pool_shapes(
            self._shapes, slots=slots, capacity=capacity, context=context, widths=context_widths
        )
        self.pools = Pools(kv, sets, self.width, HostMemory())
        self._make_buffers()
        self._bindings: dict[tuple[int, int, int, int], Any] = {}

    def execute(self, first: int, count: int, chunk: int, *, draws: bool = True) -> None:
        """Run rows first..first+count-1: a chunk of `chunk` tokens, or a decode step (0).

        Without `draws` the head may be left out, and the logits are not to be read. StageFailed
        when the graph fails.
        """
        self._draws[0] = draws
        key = (first, count, chunk, self.pools.context.width_of(first, count))
        if key not in self._bindings:
            self._bindings[key] = self._bind(*key)
        try:
            self._session.run_with_iobinding(self._bindings[key])
        except Exception as fault:  # onnxruntime raises several unrelated types
            raise StageFailed(f"the step graph failed: {fault}") from fault

    def _bind(self, first: int, count: int, chunk: int, width: int) -> Any:
        """Fix every address once; a step then needs no binding call at all."""
        binding = self._session.io_binding()
        prefill = chunk > 0
        ids = self.chunk_ids if prefill else self.ids
        shape: tuple[int, ...] = (count, chunk or 1)
        if self.width > 1:
            shape = (*shape, self.width)
        _bind_input(binding, "ids", ids, shape)
        start = self.chunk_start if prefill else self.starts
        _bind_input(binding, "start", start, (count,))
        if "noise" in self._shapes:
            noise = self.chunk_noise if prefill else self.noise
            _bind_input(binding, "noise", noise, (count, noise.shape[1]))
        if "draws" in self._shapes:
            _bind_input(binding, "draws", self._draws, (1,))
        if "clen" in self._shapes:
            _bind_input(binding, "clen", self.pools.context.length[first:], (count,))
        for name, pool in self.pools.context.pools[width].items():
            _bind_input(binding, name, pool[first:], (count, *pool.shape[1:]))
        for name, pool in self.pools.kv.items():
            view, shape = pool[first:], (count, *pool.shape[1:])
            _bind_input(binding, name, view, shape)
            _bind_output(binding, present_of(name), view, shape)
        out = self.logits if self.next is None else self.next
        name = "logits" if self.next is None else "next"
        _bind_output(binding, name, out[first:], (count, out.shape[1]))
        return binding

    def _make_buffers(self) -> None:
        outputs = {node.name: node.shape for node in self._session.get_outputs()}
        noise = self._shapes["noise"][1] if "noise" in self._shapes else 0
        self.ids = np.zeros(self._slots * self.width, np.int64)
        self.starts = np.zeros(self._slots, np.int64)
        self.noise = np.zeros((self._slots, noise), np.float32)
        self.chunk_ids = np.zeros(MAX_CHUNK * self.width, np.int64)
        self.chunk_start = np.zeros(1, np.int64)
        self._draws = np.ones(1, np.bool_)
        self.chunk_noise = np.zeros((1, noise), np.float32)
        vocabulary = outputs["logits"][-1] if "logits" in outputs else 0
        self.logits = np.zeros((self._slots, vocabulary), np.float32)
        self.next: NDArray[np.int64] | None = (
            np.zeros((self._slots, self.width), np.int64) if "next" in outputs else None
        )


def _bind_input(binding: Any, name: str, memory: NDArray[Any], shape: tuple[int, ...]) -> None:
    binding.bind_input(name, "cpu", 0, memory.dtype.type, shape, memory.ctypes.data)


def _bind_output(binding: Any, name: str, memory: NDArray[Any], shape: tuple[int, ...]) -> None:
    binding.bind_output(name, "cpu", 0, memory.dtype.type, shape, memory.ctypes.data)
