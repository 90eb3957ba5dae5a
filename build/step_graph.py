"""What every decode step graph shares: the slot-pool interface and self-attention over a pool.

Inputs `ids` int64 [B, T] and `start` int64 [B] (tokens the row already holds); per layer the pools
`k{i}`, `v{i}` fp32 [B, KV, S, D] and, as outputs of the same shape to be bound to the same memory,
`ko{i}`, `vo{i}`. Output `logits` fp32 [B, V] of the last position.

Two sets of kernels compute it: `FusedKernels` with ONNX Runtime's own operators, `PortableKernels`
with standard ones and an explicit mask (TensorRT's importer drops `nonpad_kv_seqlen` silently).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from numpy.typing import NDArray

from build.onnx_graph import FLOAT, INT32, INT64, MICROSOFT, Graph, Shape

OPSET = 24
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class StepSizes:
    """Attention sizes. `capacity` S of the pools: a number, or a name where it may vary."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int
    capacity: int | str


@dataclass(frozen=True)
class Rotary:
    """Cosines and sines [positions, D/2] of rotary position embedding, rotating halves."""

    cosine: Floats
    sine: Floats


@dataclass(frozen=True)
class HeadNorms:
    """Weights [D] of an RMSNorm that each head of queries and keys passes before it is turned."""

    query: str
    key: str
    epsilon: float


class StepGraph(ABC):
    """A step graph under construction: the graph, where each row stands, and its kernels."""

    def __init__(self, name: str, sizes: StepSizes, rotary: Rotary | None = None) -> None:
        self.graph = Graph(name)
        self.sizes = sizes
        self.rotary = rotary
        self.graph.input("ids", INT64, ["B", "T"])
        self.graph.input("start", INT64, ["B"])
        self.length = self.graph.op("Shape", "ids", start=1, end=2)
        self.end = self.graph.op("Add", "start", self.length)

    @cached_property
    def positions(self) -> str:
        """Position of each of the step's tokens, [B, T]."""
        graph = self.graph
        count = graph.op("Squeeze", self.length)
        offsets = graph.op("Range", graph.scalar(0), count, graph.scalar(1))
        return graph.op("Add", graph.op("Unsqueeze", "start", graph.ints(1)), offsets)

    @abstractmethod
    def attend(self, layer: int, packed: str, norms: HeadNorms | None = None) -> str:
        """Packed q, k, v [B, T, (H + 2 KV) D], appended to the layer's pools, to [B, T, H D]."""

    @abstractmethod
    def add_norm(self, x: str, residual: str, weight: str, epsilon: float) -> tuple[str, str]:
        """RMSNorm(x + residual), and that sum; `residual` "" stands for zero."""

    def linear(self, x: str, name: str, weight: Floats, bias: Floats | None = None) -> str:
        """x [..., in] times a PyTorch weight [out, in], plus its bias."""
        y = self.graph.op("MatMul", x, self.graph.weight(name, weight.T))
        if bias is None:
            return y
        return self.graph.op("Add", y, self.graph.weight(f"{name}.bias", bias))

    def split_heads(self, x: str, heads: int) -> str:
        """[B, T, heads * D] -> [B, heads, T, D]."""
        shape = self.graph.ints(0, 0, heads, self.sizes.head_width)
        return self.graph.op("Transpose", self.graph.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def merge_heads(self, x: str) -> str:
        """[B, H, T, D] -> [B, T, H * D]."""
        shape = self.graph.ints(0, 0, self.sizes.heads * self.sizes.head_width)
        return self.graph.op("Reshape", self.graph.op("Transpose", x, perm=[0, 2, 1, 3]), shape)

    def last(self, x: str) -> str:
        """The last position of [B, T, width]: [B, width]."""
        return self.graph.op("Gather", x, self.graph.scalar(-1), axis=1)

    def finish(self, logits: str, vocabulary: int) -> onnx.ModelProto:
        """Declare the logits, and give the model."""
        self.graph.output(logits, FLOAT, ["B", vocabulary])
        return self.graph.model(opset=OPSET)

    def _rms(self, x: str, weight: str, epsilon: float) -> str:
        """RMSNorm over the last dimension."""
        return self.graph.op("RMSNormalization", x, weight, axis=-1, epsilon=epsilon)

    def _declare_pools(self, layer: int) -> None:
        sizes = self.sizes
        shape: Shape = ["B", sizes.kv_heads, sizes.capacity, sizes.head_width]
        for side in "kv":
            self.graph.input(f"{side}{layer}", FLOAT, shape)
            self.graph.output(f"{side}o{layer}", FLOAT, shape)

    @property
    def _scale(self) -> float:
        return float(self.sizes.head_width**-0.5)


class FusedKernels(StepGraph):
    """ONNX Runtime's GroupQueryAttention and fused norm: cost follows the context, not the pool."""

    @cached_property
    def _lengths(self) -> tuple[str, str]:
        """Per row the valid length minus one, int32 [B]; the longest length, int32 []."""
        graph = self.graph
        before = graph.op("Sub", self.end, graph.scalar(1))
        longest = graph.op("ReduceMax", self.end, keepdims=0)
        return graph.op("Cast", before, to=INT32), graph.op("Cast", longest, to=INT32)

    def attend(self, layer: int, packed: str, norms: HeadNorms | None = None) -> str:
        """GroupQueryAttention on packed q, k, v; it rotates and appends by itself."""
        self._declare_pools(layer)
        own = [packed, "", ""] if norms is None else self._normed(packed, norms)
        inputs = [*own, f"k{layer}", f"v{layer}", *self._lengths]
        if self.rotary is not None:
            inputs.append(self.graph.weight("cosine", self.rotary.cosine))
            inputs.append(self.graph.weight("sine", self.rotary.sine))
        return self.graph.ops(
            "GroupQueryAttention",
            *inputs,
            out=[f"attention{layer}", f"ko{layer}", f"vo{layer}"],
            domain=MICROSOFT,
            num_heads=self.sizes.heads,
            kv_num_heads=self.sizes.kv_heads,
            do_rotary=int(self.rotary is not None),
            scale=self._scale,
        )[0]

    def _normed(self, packed: str, norms: HeadNorms) -> list[str]:
        """q, k, v [B, T, heads * D] apart, the first two normed head by head."""
        graph, sizes = self.graph, self.sizes
        widths = [heads * sizes.head_width for heads in (sizes.heads, sizes.kv_heads)]
        split = graph.ints(*widths, widths[-1])
        query, key, value = graph.ops("Split", packed, split, out=3, axis=-1)
        return [
            self._norm_heads(query, sizes.heads, norms.query, norms.epsilon),
            self._norm_heads(key, sizes.kv_heads, norms.key, norms.epsilon),
            value,
        ]

    def _norm_heads(self, x: str, heads: int, weight: str, epsilon: float) -> str:
        graph, width = self.graph, self.sizes.head_width
        apart = graph.op("Reshape", x, graph.ints(0, 0, heads, width))
        normed = self._rms(apart, weight, epsilon)
        return graph.op("Reshape", normed, graph.ints(0, 0, heads * width))

    def add_norm(self, x: str, residual: str, weight: str, epsilon: float) -> tuple[str, str]:
        """One fused operator once there is a residual."""
        if not residual:
            return self._rms(x, weight, epsilon), x
        name = "SkipSimplifiedLayerNormalization"
        out = [f"{weight}/normed", "", "", f"{weight}/sum"]
        made = self.graph.ops(name, x, residual, weight, out=out, domain=MICROSOFT, epsilon=epsilon)
        return made[0], made[3]


class PortableKernels(StepGraph):
    """Standard operators of opset 24: TensorScatter, and Attention with an explicit bool mask."""

    @cached_property
    def _seen(self) -> str:
        """Which pool positions each token may attend to: bool [B, 1, T, S]."""
        graph, capacity = self.graph, self.sizes.capacity
        if not isinstance(capacity, int):
            raise TypeError("a portable step graph needs pools of a fixed capacity")
        pool = graph.weight("pool_positions", np.arange(capacity, dtype=np.int64)[None, None])
        own = graph.op("Unsqueeze", self.positions, graph.ints(-1))
        return graph.op("Unsqueeze", graph.op("LessOrEqual", pool, own), graph.ints(1))

    def attend(self, layer: int, packed: str, norms: HeadNorms | None = None) -> str:
        """Split heads, rotate, scatter into the pools, then masked attention over whole pools."""
        self._declare_pools(layer)
        graph, heads, kv = self.graph, self.sizes.heads, self.sizes.kv_heads
        split = graph.ints(heads, kv, kv)
        query, key, value = graph.ops(
            "Split", self.split_heads(packed, heads + 2 * kv), split, out=3, axis=1
        )
        if norms is not None:
            query = self._rms(query, norms.query, norms.epsilon)
            key = self._rms(key, norms.key, norms.epsilon)
        query, key = self._rotate(query), self._rotate(key)
        graph.op("TensorScatter", f"k{layer}", key, "start", out=f"ko{layer}", axis=2)
        graph.op("TensorScatter", f"v{layer}", value, "start", out=f"vo{layer}", axis=2)
        pools = (f"ko{layer}", f"vo{layer}")
        return self.merge_heads(graph.op("Attention", query, *pools, self._seen, scale=self._scale))

    def add_norm(self, x: str, residual: str, weight: str, epsilon: float) -> tuple[str, str]:
        """A standard addition and RMSNormalization."""
        total = self.graph.op("Add", x, residual) if residual else x
        return self._rms(total, weight, epsilon), total

    def _rotate(self, x: str) -> str:
        if self.rotary is None:
            return x
        cosine = self.graph.weight("cosine", self.rotary.cosine)
        sine = self.graph.weight("sine", self.rotary.sine)
        return self.graph.op("RotaryEmbedding", x, cosine, sine, self.positions)
