"""What this machine can do at most on one thread: multiply in fp32 and int8, and read."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from loadtest.stages.onnx_cost import BLOCKS, FLOAT, INT8
from loadtest.stages.roofline import Ceilings

ROWS, INNER, COLUMNS = 512, 1024, 1024
"""Of the large products: 1.07 billion operations, operands of 4 MiB and less."""

BLOCK = 64
"""Numbers that share a scale, as in our graphs' MatMulNBits."""

MEMORY_BYTES = 256 * 2**20
"""An array much larger than any cache."""

CACHE_PART = 4
"""Of the last-level cache, which others use too, an array of this part is read."""

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE_BYTES = 32 * 2**20
"""Where the kernel does not tell: what servers commonly have a core complex."""

SECONDS = 0.12
"""How long each is tried in a round."""

FEWEST = 3


class Machine:
    """The best that was seen of each, over all rounds: a ceiling is not a median."""

    def __init__(self) -> None:
        self.cache_bytes = cache_bytes()
        array = np.ones(MEMORY_BYTES // 4, np.float32)
        part = array[: self.cache_bytes // CACHE_PART // 4]
        self._tries: dict[str, tuple[Callable[[], Any], float]] = {
            "fp32 MatMul": (_float(), 2 * ROWS * INNER * COLUMNS),
            "int8 MatMulNBits": (_nbits(), 2 * ROWS * INNER * COLUMNS),
            "int8 MatMulInteger": (_integer(), 2 * ROWS * INNER * COLUMNS),
            **{f"memory {name}": (partial(f, array), array.nbytes) for name, f in READS.items()},
            **{f"cache {name}": (partial(f, part), part.nbytes) for name, f in READS.items()},
        }
        self.best: dict[str, float] = dict.fromkeys(self._tries, 0.0)
        """What -> operations or bytes a second."""

    def round(self) -> None:
        """Try each again."""
        for name, (work, amount) in self._tries.items():
            self.best[name] = max(self.best[name], amount / min(timed_s(work)))

    @property
    def ceilings(self) -> Ceilings:
        """After a round at least."""
        best = self.best
        return Ceilings(
            operations={
                FLOAT: best["fp32 MatMul"],
                INT8: best["int8 MatMulInteger"],
                BLOCKS: best["int8 MatMulNBits"],
            },
            memory=max(best[f"memory {name}"] for name in READS),
            cache=max(best[f"cache {name}"] for name in READS),
            cache_bytes=self.cache_bytes,
        )


READS: dict[str, Callable[[NDArray[np.float32]], Any]] = {
    "dot": lambda array: np.dot(array, array),
    "max": lambda array: array.view(np.int64).max(),
}
"""Ways to read an array once; the faster one tells what the machine can do."""


def timed_s(work: Callable[[], object], seconds: float = SECONDS) -> list[float]:
    """Of each run that fits into `seconds`, FEWEST at least, behind one that is not timed."""
    work()
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < FEWEST or time.perf_counter() < until:
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return found


def cache_bytes(folder: Path = CACHES) -> int:
    """Of the largest cache of a core; a virtual machine may have less of it than it is told."""
    sizes = [path.read_text().strip() for path in folder.glob("index*/size")]
    units = {"K": 2**10, "M": 2**20}
    known = [int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units]
    return max(known, default=UNKNOWN_CACHE_BYTES)


def _float() -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    b = rng.standard_normal((INNER, COLUMNS)).astype(np.float32)
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    a = rng.standard_normal((ROWS, INNER)).astype(np.float32)
    return _session(node, {"b": b}, a, TensorProto.FLOAT)


def _integer() -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    b = rng.integers(-128, 128, (INNER, COLUMNS)).astype(np.int8)
    node = helper.make_node("MatMulInteger", ["a", "b"], ["c"])
    a = rng.integers(0, 256, (ROWS, INNER)).astype(np.uint8)
    return _session(node, {"b": b}, a, TensorProto.INT32)


def _nbits() -> Callable[[], Any]:
    """As in our graphs: 8 bits, blocks of BLOCK, multiplied in int8."""
    rng = np.random.default_rng(0)
    blocks = INNER // BLOCK
    weights: dict[str, NDArray[Any]] = {
        "b": rng.integers(0, 256, (COLUMNS, blocks, BLOCK)).astype(np.uint8),
        "scales": np.full(COLUMNS * blocks, 1e-3, np.float32),
        "zeros": np.full(COLUMNS * blocks, 128, np.uint8),
    }
    about: dict[str, Any] = {
        "K": INNER,
        "N": COLUMNS,
        "bits": 8,
        "block_size": BLOCK,
        "accuracy_level": 4,
    }
    inputs = ["a", *weights]
    node = helper.make_node("MatMulNBits", inputs, ["c"], domain="com.microsoft", **about)
    a = rng.standard_normal((ROWS, INNER)).astype(np.float32)
    return _session(node, weights, a, TensorProto.FLOAT)


def _session(
    node: onnx.NodeProto, weights: dict[str, NDArray[Any]], a: NDArray[Any], out: int
) -> Callable[[], Any]:
    """Running `node` on `a` and constant weights, one thread."""
    graph = helper.make_graph(
        [node],
        "ceiling",
        [helper.make_tensor_value_info("a", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)],
        [helper.make_tensor_value_info("c", out, [ROWS, COLUMNS])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"a": a})
