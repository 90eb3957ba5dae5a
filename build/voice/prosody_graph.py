"""The decode step of the prosody LM as an ONNX graph over a pool of key-value slots.

Two forms with the same inputs and outputs: `gqa` for ONNX Runtime on a CPU (GroupQueryAttention of
com.microsoft) and `portable` (TensorScatter and Attention with an explicit mask, standard ops). A
pool row is one utterance; present pools are meant to be bound to the memory of the past ones.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from build.voice.prosody_lm import (
    HEAD_WIDTH,
    HEADS,
    LAYERS,
    LEAST_SHARE,
    MAX_PHONEMES,
    WIDTH,
    ProsodyLM,
)
from python_backends.speech import DURATIONS, PITCHES

Form = Literal["gqa", "portable"]

_OPSET: Final = 24
_IR_VERSION: Final = 10
_MICROSOFT: Final = "com.microsoft"
_POOL: Final[list[str | int]] = ["B", HEADS, MAX_PHONEMES, HEAD_WIDTH]


def step_model(lm: ProsodyLM, form: Form) -> onnx.ModelProto:
    """The step graph of `lm`.

    Inputs: ids int64 [B, T, 2], the previous tokens plus one (duration, pitch); start int64 [B],
    steps already in each row; enc float32 [B, MAX_PHONEMES, WIDTH], of which positions start ..
    start+T-1 are read; noise float32 [B, DURATIONS + PITCHES], added to the logits; pools k{i},
    v{i} float32 [B, HEADS, MAX_PHONEMES, HEAD_WIDTH].
    Outputs: next int64 [B, 2], the tokens of the last position; pools ko{i}, vo{i}.
    """
    return _StepGraph(lm, form).model()


class _Graph:
    """Collects nodes and constants; `op` returns the name of a node's only output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, value: NDArray[Any] | Sequence[int] | int) -> str:
        """The name of a constant, int64 unless an array says otherwise."""
        array = value if isinstance(value, np.ndarray) else np.array(value, np.int64)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        (output,) = self.ops(kind, inputs, [f"{kind}_{len(self.nodes)}"], **attributes)
        return output

    def ops(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> Sequence[str]:
        """A node with named outputs; `domain` is an attribute of its own."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return outputs


class _StepGraph(_Graph):
    def __init__(self, lm: ProsodyLM, form: Form) -> None:
        super().__init__()
        self._form = form
        self._weights = lm.state_dict()

    def model(self) -> onnx.ModelProto:
        hidden = self._last(self._layers(self._enter()))
        self._choose(self._norm(hidden, "norm"))
        graph = helper.make_graph(
            self.nodes,
            "prosody_step",
            _inputs(),
            _outputs(),
            list(self.constants.values()),
        )
        domains = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
        used = domains if self._form == "gqa" else domains[:1]
        model = helper.make_model(graph, opset_imports=used, ir_version=_IR_VERSION)
        onnx.checker.check_model(model)
        return model

    # Parts of the network, in the order of ProsodyLM.forward.

    def _enter(self) -> str:
        """[B, T, WIDTH]: encoding, previous tokens and position, summed; sets the positions."""
        count = self.op("Shape", "ids", start=1, end=2)
        self._count = count
        steps = self.op("Range", self.constant(0), self.op("Squeeze", count), self.constant(1))
        start = self.op("Unsqueeze", "start", self.constant([1]))
        self._positions = self.op("Add", start, steps)
        index = self.op("Unsqueeze", self._positions, self.constant([2]))
        x = self.op("GatherND", "enc", index, batch_dims=1)
        previous = self.ops(
            "Split", ["ids"], ["previous_duration", "previous_pitch"], axis=2, num_outputs=2
        )
        for name in previous:
            token = self.op("Squeeze", name, self.constant([2]))
            x = self.op("Add", x, self._embed(name, token))
        return self.op("Add", x, self._embed("position", self._positions))

    def _layers(self, x: str) -> str:
        attend = {"gqa": self._gqa, "portable": self._masked}[self._form]
        self._prepare_attention()
        for i in range(LAYERS):
            layer = f"layers.{i}"
            qkv = self._linear(self._norm(x, f"{layer}.attention_norm"), f"{layer}.qkv")
            x = self.op("Add", x, self._linear(attend(qkv, i), f"{layer}.attention_out"))
            hidden = self._linear(self._norm(x, f"{layer}.mlp_norm"), f"{layer}.mlp_in")
            x = self.op("Add", x, self._linear(self.op("Gelu", hidden), f"{layer}.mlp_out"))
        return x

    def _prepare_attention(self) -> None:
        if self._form == "gqa":
            end = self.op("Add", "start", self._count)
            last = self.op("Sub", end, self.constant(1))
            self._last_key = self.op("Cast", last, to=TensorProto.INT32)
            total = self.op("ReduceMax", end, keepdims=0)
            self._total = self.op("Cast", total, to=TensorProto.INT32)
            return
        keys = self.constant(np.arange(MAX_PHONEMES)[None, None])
        rows = self.op("Unsqueeze", self._positions, self.constant([2]))
        seen = self.op("LessOrEqual", keys, rows)
        self._mask = self.op("Unsqueeze", seen, self.constant([1]))

    def _gqa(self, qkv: str, i: int) -> str:
        outputs = self.ops(
            "GroupQueryAttention",
            [qkv, "", "", f"k{i}", f"v{i}", self._last_key, self._total],
            [f"attended{i}", f"ko{i}", f"vo{i}"],
            domain=_MICROSOFT,
            num_heads=HEADS,
            kv_num_heads=HEADS,
            scale=HEAD_WIDTH**-0.5,
        )
        return outputs[0]

    def _masked(self, qkv: str, i: int) -> str:
        split = self.op("Reshape", qkv, self.constant([0, 0, 3 * HEADS, HEAD_WIDTH]))
        heads = self.op("Transpose", split, perm=[0, 2, 1, 3])
        names = [f"query{i}", f"key{i}", f"value{i}"]
        query, key, value = self.ops("Split", [heads], names, axis=1, num_outputs=3)
        (keys,) = self.ops("TensorScatter", [f"k{i}", key, "start"], [f"ko{i}"], axis=2)
        (values,) = self.ops("TensorScatter", [f"v{i}", value, "start"], [f"vo{i}"], axis=2)
        mixed = self.op("Attention", query, keys, values, self._mask, scale=HEAD_WIDTH**-0.5)
        joined = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        return self.op("Reshape", joined, self.constant([0, 0, WIDTH]))

    def _last(self, x: str) -> str:
        return self.op("Gather", x, self.constant(-1), axis=1)

    def _choose(self, hidden: str) -> None:
        """Gumbel-max: duration first, then pitch given the duration."""
        sizes = self.constant([DURATIONS, PITCHES])
        names = ["duration_noise", "pitch_noise"]
        duration_noise, pitch_noise = self.ops("Split", ["noise", sizes], names, axis=1)
        duration = self._argmax(self._linear(hidden, "duration_head"), duration_noise)
        chosen = self.op("Add", hidden, self._embed("chosen_duration", duration))
        inner = self.op("Gelu", self._linear(chosen, "pitch_head.0"))
        pitch = self._argmax(self._linear(inner, "pitch_head.2"), pitch_noise)
        axis = self.constant([1])
        pair = [self.op("Unsqueeze", token, axis) for token in (duration, pitch)]
        self.ops("Concat", pair, ["next"], axis=1)

    def _argmax(self, logits: str, noise: str) -> str:
        """Of those that may be drawn, see `prosody_lm.likely`."""
        margin = self.constant(np.array(math.log(LEAST_SHARE), np.float32))
        peak = self.op("ReduceMax", logits, self.constant([1]), keepdims=1)
        unlikely = self.op("Less", logits, self.op("Add", peak, margin))
        never = self.constant(np.array(-np.inf, np.float32))
        left = self.op("Where", unlikely, never, logits)
        return self.op("ArgMax", self.op("Add", left, noise), axis=1, keepdims=0)

    def _weight(self, name: str) -> NDArray[np.float32]:
        tensor: Tensor = self._weights[name]
        return np.asarray(tensor.float().numpy())

    def _embed(self, name: str, index: str) -> str:
        return self.op("Gather", self.constant(self._weight(f"{name}.weight")), index)

    def _linear(self, x: str, name: str) -> str:
        weight = np.ascontiguousarray(self._weight(f"{name}.weight").T)
        bias = self.constant(self._weight(f"{name}.bias"))
        return self.op("Add", self.op("MatMul", x, self.constant(weight)), bias)

    def _norm(self, x: str, name: str) -> str:
        scale = self.constant(self._weight(f"{name}.weight"))
        bias = self.constant(self._weight(f"{name}.bias"))
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)


def _inputs() -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["B", "T", 2]),
        helper.make_tensor_value_info("start", TensorProto.INT64, ["B"]),
        helper.make_tensor_value_info("enc", TensorProto.FLOAT, ["B", MAX_PHONEMES, WIDTH]),
        helper.make_tensor_value_info("noise", TensorProto.FLOAT, ["B", DURATIONS + PITCHES]),
        *_pools("k", "v"),
    ]


def _outputs() -> list[onnx.ValueInfoProto]:
    chosen = helper.make_tensor_value_info("next", TensorProto.INT64, ["B", 2])
    return [chosen, *_pools("ko", "vo")]


def _pools(keys: str, values: str) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(f"{name}{i}", TensorProto.FLOAT, _POOL)
        for i in range(LAYERS)
        for name in (keys, values)
    ]
