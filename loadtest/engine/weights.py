"""The LLM's weights for the peers: the GGUF file that our graph was built from, without our LoRA.

They are as large and as many, so they take the same time; what a peer says is not compared.
"""

import functools
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from loadtest.engine.bare import STEP
from loadtest.sources import source

Floats = NDArray[np.float32]


def gguf_path() -> Path:
    """Where the build has it: the provenance of our graph names it. ValueError if it does not."""
    return source(STEP / "model.onnx", ".gguf")


@functools.cache
def _reader() -> Any:
    return gguf.GGUFReader(gguf_path())


def value(key: str) -> Any:
    """A field of the file's metadata."""
    return _reader().fields[key].contents()


@functools.cache
def _tensors() -> dict[str, Any]:
    return {tensor.name: tensor for tensor in _reader().tensors}


def array(name: str) -> Floats:
    """A tensor in fp32, [out, in]; rows of q and k as rotary halves, not pairs, of each head."""
    tensor = _tensors()[f"{name}.weight"]
    shape = tuple(int(size) for size in reversed(tensor.shape))
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    weight = np.asarray(values, np.float32).reshape(shape)
    heads = {
        "attn_q": "llama.attention.head_count",
        "attn_k": "llama.attention.head_count_kv",
    }.get(name.split(".")[-1])
    return weight if heads is None else _halves(weight, int(value(heads)))


def _halves(weight: Floats, heads: int) -> Floats:
    pairs = weight.reshape(heads, len(weight) // heads // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)
