"""A thin layer over onnx.helper: build a graph by naming operators; tensors are their names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64

Shape = Sequence[int | str]


class Graph:
    """A graph under construction. Every method that makes a tensor returns its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: int, shape: Shape) -> str:
        """Declare a graph input; a str dimension is dynamic."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, name: str, dtype: int, shape: Shape) -> str:
        """Declare that the tensor `name` is a graph output."""
        self._outputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def weight(self, name: str, value: NDArray[Any]) -> str:
        """A named initialiser; the same name again gives the first one."""
        if name not in self._weights:
            self._weights[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def ints(self, *values: int) -> str:
        """An int64 vector constant."""
        name = f"ints{list(values)}".replace(" ", "")
        return self.weight(name, np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        """An int64 constant of rank 0."""
        return self.weight(f"scalar{value}", np.array(value, np.int64))

    def op(
        self, kind: str, *inputs: str, out: str = "", domain: str = "", **attributes: Any
    ) -> str:
        """Append an operator of one output, named `out` where given. "" skips an optional input."""
        return self.ops(kind, *inputs, out=[out or self._fresh(kind)], domain=domain, **attributes)[
            0
        ]

    def ops(
        self, kind: str, *inputs: str, out: int | list[str], domain: str = "", **attributes: Any
    ) -> list[str]:
        """Append an operator of several outputs: their names, or how many ("" is not computed)."""
        base = self._fresh(kind)
        names = [f"{base}.{n}" for n in range(out)] if isinstance(out, int) else out
        node = helper.make_node(kind, inputs, names, name=base, domain=domain, **attributes)
        self._nodes.append(node)
        return names

    def model(self, *, opset: int, ir_version: int = 10) -> onnx.ModelProto:
        """The finished model; com.microsoft is imported only where it is used."""
        domains = {node.domain for node in self._nodes} - {""}
        imports = [helper.make_opsetid("", opset)]
        imports += [helper.make_opsetid(domain, 1) for domain in sorted(domains)]
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, list(self._weights.values())
        )
        return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)

    def _fresh(self, kind: str) -> str:
        return f"{kind}_{len(self._nodes)}"
