"""What the importer loses is told: by counts, by what attentions are bound to, by what it says."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from build.onnx_graph import FLOAT, INT64, Graph
from build.tensorrt.arrival import Attention, Network, Tensor, Update, complaints

QUERY = Tensor("q", "FLOAT", (-1, 2, 1, 8))
MASK = Tensor("mask", "BOOL", (-1, 1, 1, 16))
POOLS = (-1, 2, 16, 8)


def graph(*, lengths: bool = False) -> onnx.ModelProto:
    made = Graph("attends")
    made.input("q", FLOAT, ["B", 2, 1, 8])
    made.input("start", INT64, ["B"])
    for side in "kv":
        made.input(side, FLOAT, ["B", 2, 16, 8])
        made.op("TensorScatter", side, "q", "start", out=f"{side}o", axis=2)
        made.output(f"{side}o", FLOAT, ["B", 2, 16, 8])
    mask = "" if lengths else made.weight("mask", np.ones((1, 1, 1, 16), bool))
    more = ["", "", "start"] if lengths else []
    made.op("Attention", "q", "ko", "vo", mask, *more, out="y")
    made.output("y", FLOAT, ["B", 2, 1, 8])
    return made.model(opset=24)


AS_MEANT = Network(
    layers=["KV_CACHE_UPDATE", "KV_CACHE_UPDATE", "ATTENTION_INPUT", "ATTENTION_OUTPUT"],
    attentions=[Attention("Attention_2", QUERY, MASK, causal=False, lengths=False)],
    updates=[Update("k", "ko", linear=True), Update("v", "vo", linear=True)],
    inputs=[QUERY, Tensor("start", "INT64", (-1,))]
    + [Tensor(side, "FLOAT", POOLS) for side in "kv"],
    outputs=[Tensor(f"{side}o", "FLOAT", POOLS) for side in "kv"]
    + [Tensor("y", "FLOAT", (-1, 2, 1, 8))],
)


def attention(**changed: object) -> Network:
    return replace(AS_MEANT, attentions=[replace(AS_MEANT.attentions[0], **changed)])  # type: ignore[arg-type]


def test_a_network_that_is_as_meant_is_not_complained_of() -> None:
    assert complaints(graph(), AS_MEANT) == []


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (attention(mask=None), "its mask was dropped"),
        (attention(mask=replace(MASK, kind="INT32")), "its mask is INT32, its query FLOAT"),
        (attention(causal=True), "is_causal is False in the graph, True in the network"),
        (replace(AS_MEANT, layers=AS_MEANT.layers[1:]), "2 TensorScatter became 1 KV_CACHE_UPDATE"),
        (replace(AS_MEANT, layers=AS_MEANT.layers[:2]), "1 Attention became 0 ATTENTION_INPUT"),
        (replace(AS_MEANT, updates=AS_MEANT.updates[:1]), "pool v to vo"),
        (
            replace(AS_MEANT, updates=[Update("k", "ko", linear=False), *AS_MEANT.updates[1:]]),
            "pool k",
        ),
        (
            replace(AS_MEANT, outputs=AS_MEANT.outputs[:2]),
            "output y: FLOAT in the graph, not there",
        ),
        (
            replace(AS_MEANT, inputs=[replace(QUERY, kind="HALF"), *AS_MEANT.inputs[1:]]),
            "input q: FLOAT in the graph, HALF in the network",
        ),
        (replace(AS_MEANT, said=["Unused Input: start"]), "the importer said: Unused Input: start"),
    ],
)
def test_whatever_is_lost_is_told(network: Network, said: str) -> None:
    [found] = complaints(graph(), network)
    assert said in found


def test_dropped_lengths_are_told_even_if_the_importer_says_nothing() -> None:
    [found] = complaints(graph(lengths=True), attention(mask=None))
    assert "nonpad_kv_seqlen was dropped" in found
    assert complaints(graph(lengths=True), attention(mask=None, lengths=True)) == []


def test_an_lstm_brings_products_of_its_own() -> None:
    node = helper.make_node("LSTM", ["x"], ["y"])
    product = helper.make_node("MatMul", ["y", "w"], ["z"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xz"]
    model = helper.make_model(helper.make_graph([node, product], "g", values[:1], values[1:]))
    tensors = [Tensor(name, "FLOAT", (1,)) for name in "xz"]
    network = Network(["MATRIX_MULTIPLY"] * 3, [], [], tensors[:1], tensors[1:])
    assert complaints(model, network) == []
