"""A step graph whose logits are only computed when somebody draws from them.

The chunks of a prompt but the last draw nothing, and the vocabulary's matrix is a fifth of the LLM.
"""

import onnx
from onnx import TensorProto, helper

FLAG = "draws"
"""A graph input, bool [1]: false leaves `logits` zero."""

_LOGITS = "logits"


def with_optional_head(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph, the node that makes `logits` [B, V] in a branch of an If. Works in place."""
    graph = model.graph
    head = next(node for node in graph.node if _LOGITS in node.output)
    output = next(one for one in graph.output if one.name == _LOGITS)
    vocabulary = output.type.tensor_type.shape.dim[1].dim_value
    graph.node.remove(head)
    branches = {
        "then_branch": _drawing(head, vocabulary),
        "else_branch": _idle(head.input[0], vocabulary),
    }
    graph.node.append(helper.make_node("If", [FLAG], [_LOGITS], name="optional_head", **branches))
    graph.input.append(helper.make_tensor_value_info(FLAG, TensorProto.BOOL, [1]))
    return model


def _drawing(head: onnx.NodeProto, vocabulary: int) -> onnx.GraphProto:
    node = onnx.NodeProto()
    node.CopyFrom(head)
    node.output[0] = "drawn"
    return helper.make_graph([node], "drawing", [], [_logits("drawn", vocabulary)])


def _idle(hidden: str, vocabulary: int) -> onnx.GraphProto:
    nodes = [
        helper.make_node("Shape", [hidden], ["rows"], start=0, end=1),
        helper.make_node("Concat", ["rows", "vocabulary"], ["shape"], axis=0),
        helper.make_node("ConstantOfShape", ["shape"], ["nothing"]),
    ]
    size = helper.make_tensor("vocabulary", TensorProto.INT64, [1], [vocabulary])
    return helper.make_graph(
        nodes, "idle", [], [_logits("nothing", vocabulary)], initializer=[size]
    )


def _logits(name: str, vocabulary: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", vocabulary])
