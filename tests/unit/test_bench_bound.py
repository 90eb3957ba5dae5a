"""What the roofline makes of its numbers: operations of tiny graphs, the rule, a lone caller."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from loadtest.ledger.palette import png
from loadtest.stages.bound import graph_figures, stages_told, table, uncounted
from loadtest.stages.bound_host import (
    LOOPS,
    STAGES,
    Host,
    Times,
    commands_per_call,
    commands_told,
)
from loadtest.stages.ceilings import UNKNOWN_CACHE_BYTES, cache_bytes
from loadtest.stages.lone import TARGETS, Waited, lone_figures
from loadtest.stages.onnx_cost import BLOCKS, FLOAT, INT8, Cost, Executed, Tensors, cost_of
from loadtest.stages.onnx_run import cost, pools, time_by_operator
from loadtest.stages.roofline import THRESHOLD, Bound, Ceilings, Point, bound_by
from loadtest.stages.roofline_plot import roofline

Floats = NDArray[np.float32]
CEILINGS = Ceilings({FLOAT: 100e9, INT8: 400e9, BLOCKS: 160e9}, 30e9, 80e9, 32_000_000)


def graph(
    nodes: Sequence[onnx.NodeProto], weights: dict[str, NDArray[Any]], kind: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    """From input x to output y, of whatever shapes."""
    made = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info("x", kind, None)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ones(*shape: int) -> Floats:
    return np.ones(shape, np.float32)


def counted(
    node: onnx.NodeProto, weights: dict[str, NDArray[Any]], x: NDArray[Any]
) -> dict[str, int]:
    return dict(cost(graph([node], weights), {"x": x}).operations)


def test_a_product_of_matrices_is_two_operations_a_multiply_add() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    assert counted(node, {"w": ones(4, 5)}, ones(2, 3, 4)) == {FLOAT: 2 * (2 * 3 * 5) * 4}


def test_a_transposed_gemm_sums_over_the_first_axis() -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transA=1)
    assert counted(node, {"w": ones(4, 5)}, ones(4, 3)) == {FLOAT: 2 * 3 * 5 * 4}


def test_a_grouped_convolution_sums_over_its_group_and_kernel_alone() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=2, pads=[1, 1])
    assert counted(node, {"w": ones(6, 2, 3)}, ones(1, 4, 10)) == {FLOAT: 2 * (6 * 10) * (2 * 3)}


def test_a_transposed_convolution_spreads_every_input() -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2])
    assert counted(node, {"w": ones(4, 3, 2)}, ones(1, 4, 10)) == {FLOAT: 2 * (4 * 10) * (3 * 2)}


def test_weights_and_ends_are_moved_once_however_often_they_are_used() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    found = cost(graph(nodes, {"w": ones(4, 4)}), {"x": ones(3, 4)})
    assert found.total == 2 * 2 * 3 * 4 * 4
    assert found.nbytes == 4 * (4 * 4 + 3 * 4 + 3 * 4)
    assert found.intensity == found.total / found.nbytes


def test_of_a_table_only_the_gathered_rows_are_moved() -> None:
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    model = graph([node], {"table": ones(100, 8)}, TensorProto.INT64)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    found = cost(model, {"x": np.array([3, 5])})
    assert found.nbytes == 4 * 2 * 8 + 8 * 2 + 4 * 2 * 8


def test_weights_in_constant_nodes_are_weights() -> None:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(ones(4, 5)))
    found = cost(
        graph([constant, helper.make_node("MatMul", ["x", "w"], ["y"])], {}), {"x": ones(2, 4)}
    )
    assert found.total == 2 * 2 * 5 * 4
    assert found.nbytes == 4 * (4 * 5 + 2 * 4 + 2 * 5)


def test_only_the_branch_that_is_taken_is_counted() -> None:
    def branch(name: str, *weights: str) -> onnx.GraphProto:
        names = ["x", *(f"{name}{number}" for number in range(1, len(weights))), f"{name}_out"]
        nodes = [
            helper.make_node("MatMul", [names[number], weight], [names[number + 1]])
            for number, weight in enumerate(weights)
        ]
        out = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [out])

    node = helper.make_node(
        "If", ["yes"], ["y"], then_branch=branch("a", "w"), else_branch=branch("b", "w", "w")
    )
    for yes, products in ((True, 1), (False, 2)):
        model = graph([node], {"w": ones(4, 4), "yes": np.array(yes)})
        assert cost(model, {"x": ones(2, 4)}).total == products * 2 * 2 * 4 * 4


def test_an_operator_on_no_list_is_named_and_not_counted_as_nothing() -> None:
    model = graph([helper.make_node("Einsum", ["x", "w"], ["y"], equation="ij,jk->ik")], {})
    model.graph.initializer.append(numpy_helper.from_array(ones(4, 5), "w"))
    found = cost(model, {"x": ones(3, 4)})
    assert found.uncounted == Counter({"Einsum": 1})
    point = Point(found, 1.0, CEILINGS)
    assert uncounted({"tiny": point}) == {"Einsum": ["tiny"]}
    assert graph_figures({"tiny": point})["bound_uncounted_operators"] == 1


def test_time_by_operator_adds_up() -> None:
    model = graph([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": ones(64, 64)})
    assert time_by_operator(model.SerializeToString(), {"x": ones(64, 64)}) == {"MatMul": 1.0}


def attention(op: str, inputs: Sequence[str], **attributes: int) -> Executed:
    return Executed(op, tuple(inputs), ("out",), attributes)


def test_causal_attention_counts_what_each_token_may_see_and_moves_no_more() -> None:
    """3 tokens behind 5 others and behind none: 6 + 7 + 8 and 1 + 2 + 3 pairs a head."""
    shapes = {"qkv": (2, 3, 64), "k0": (2, 1, 512, 16), "v0": (2, 1, 512, 16), "out": (2, 3, 32)}
    stored = {"k0": 10**6, "v0": 10**6, "ko0": 10**6, "vo0": 10**6}
    tensors = Tensors(shapes, stored, pools(shapes, {"ko0": 1, "vo0": 1}), starts=(5, 0))
    node = attention("GroupQueryAttention", ["qkv", "", "", "k0", "v0"], num_heads=2)
    found = cost_of([node], tensors)
    assert found.operations == {FLOAT: 2 * 2 * 2 * 16 * (6 + 7 + 8 + 1 + 2 + 3)}
    assert found.nbytes == 2 * 4 * 1 * 16 * (8 + 3)


def test_dense_attention_counts_every_pair() -> None:
    shapes = {"q": (1, 6, 2, 64), "k": (1, 6, 750, 64), "v": (1, 6, 750, 32), "out": (1, 6, 2, 32)}
    found = cost_of([attention("Attention", ["q", "k", "v"])], Tensors(shapes, {}))
    assert found.total == 2 * 6 * 2 * 750 * (64 + 32)


@pytest.mark.parametrize(
    ("op", "attributes", "kind"),
    [
        ("MatMulNBits", {"K": 8, "accuracy_level": 4}, BLOCKS),
        ("MatMulNBits", {"K": 8}, FLOAT),
        ("MatMulInteger", {}, INT8),
        ("MatMul", {}, FLOAT),
    ],
)
def test_operations_have_the_kind_that_they_are_done_in(
    op: str, attributes: dict[str, int], kind: str
) -> None:
    tensors = Tensors({"a": (3, 8), "b": (8, 5), "out": (3, 5)}, {})
    found = cost_of([Executed(op, ("a", "b"), ("out",), attributes)], tensors)
    assert found.operations == {kind: 2 * 3 * 5 * 8}


@pytest.mark.parametrize(
    ("compute", "memory", "host_ms", "word"),
    [
        (0.8, 0.1, 0.0, Bound.COMPUTE),
        (0.1, 0.8, 0.0, Bound.MEMORY),
        (0.8, 0.9, 0.0, Bound.MEMORY),
        (THRESHOLD, 0.0, 0.0, Bound.COMPUTE),
        (THRESHOLD - 0.01, THRESHOLD - 0.01, 0.0, Bound.OVERHEAD),
        (0.9, 0.1, 9.9, Bound.COMPUTE),
        (0.9, 0.1, 10.1, Bound.HOST),
        (0.1, 0.1, 10.1, Bound.HOST),
    ],
)
def test_the_rule(compute: float, memory: float, host_ms: float, word: Bound) -> None:
    assert bound_by(compute, memory, host_ms=host_ms, compute_ms=10.0) is word


def point(
    operations: dict[str, int], nbytes: int, seconds: float, ceilings: Ceilings = CEILINGS
) -> Point:
    return Point(Cost(Counter(operations), nbytes), seconds, ceilings)


def test_a_graph_of_two_kinds_needs_the_time_of_both() -> None:
    one = point({FLOAT: 10**9, INT8: 4 * 10**9}, 1000, 0.04)
    assert one.share_of_compute == pytest.approx((0.01 + 0.01) / 0.04)
    assert one.per_s == pytest.approx(125e9)
    assert point({FLOAT: 10**9, INT8: 10**9}, 1000, 0.04).kind == FLOAT


def test_what_fits_into_the_cache_has_the_caches_roof() -> None:
    small, large = point({}, 32_000_000, 0.001), point({}, 33_000_000, 0.001)
    assert (small.fits_in_cache, large.fits_in_cache) == (True, False)
    assert small.share_of_memory == pytest.approx(32e9 / 80e9)
    assert large.share_of_memory == pytest.approx(33e9 / 30e9)


def test_the_largest_cache_counts(tmp_path: Path) -> None:
    for number, size in enumerate(("32K", "1024K", "32M")):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(f"{size}\n")
    assert cache_bytes(tmp_path) == 32 * 2**20
    assert cache_bytes(tmp_path / "none") == UNKNOWN_CACHE_BYTES


POINTS = {
    "asr_encoder_1500": point({FLOAT: 10**9}, 10**6, 0.012),
    "asr_decode_step_n1": point({BLOCKS: 10**6}, 40 * 10**6, 0.002),
    "think_step_n1_c256": point({BLOCKS: 10**6}, 10**6, 0.002),
    "prosody_step_n1": point({FLOAT: 10**6}, 10**6, 0.002),
    "acoustic_step_160": point({FLOAT: 10**9}, 10**6, 0.012),
    "vocoder_90": point({FLOAT: 10**9}, 10**6, 0.012),
    "vad": point({FLOAT: 10**6}, 10**6, 0.002),
}


def served(host_ms: float) -> Host:
    times = Times([10 + host_ms, 10 + host_ms, 99.0], [10.0, 10.0, 10.0])
    return Host(dict.fromkeys(STAGES, times), 1.0, {"think": 3})


def test_host_time_is_what_a_call_takes_beyond_its_graphs() -> None:
    assert served(4.0).stages["think"].host_ms == pytest.approx(4.0)
    words = {name: one["bound"] for name, one in stages_told(served(4.0), POINTS).items()}
    assert (words["encode"], words["asr_decode"], words["think"]) == (
        Bound.COMPUTE,
        Bound.MEMORY,
        Bound.OVERHEAD,
    )
    assert {one["bound"] for one in stages_told(served(11.0), POINTS).values()} == {Bound.HOST}


def test_commands_of_a_call_are_counted_and_never_none() -> None:
    rows = "".join(f'tristage_steps_total{{stage="{stage}"}} 27\n' for stage in LOOPS)
    told = commands_told(
        f'{rows}tristage_steps_total{{stage="encode"}} 3\nother{{stage="think"}} 9\n'
    )
    assert {stage: told[stage] for stage in LOOPS} == dict.fromkeys(LOOPS, 27.0)
    assert commands_per_call({}, told, 2) == dict.fromkeys(LOOPS, 14)
    with pytest.raises(ValueError, match=r"no commands were counted in asr_decode, think, prosody"):
        commands_per_call(told, told, 2)
    with pytest.raises(ValueError, match=r"in think$"):
        commands_per_call({}, {stage: 9.0 for stage in LOOPS if stage != "think"}, 2)


def test_the_table_has_a_row_for_each_graph_and_each_stage() -> None:
    lines = table(POINTS, served(11.0))
    assert len(lines) == 2 + len(POINTS) + 1 + 2 + len(STAGES)
    assert "| `think` | 10.00 | 11.00 | host |" in lines


def test_the_picture_names_every_graph() -> None:
    graphs = {
        name: {
            "bound": str(one.bound),
            "kind": one.kind,
            "flop_per_byte": one.cost.intensity,
            "per_s": one.per_s,
            "share_of_compute": one.share_of_compute,
            "share_of_memory": one.share_of_memory,
        }
        for name, one in POINTS.items()
    }
    ceilings = {"operations": dict(CEILINGS.operations), "memory": 30e9, "cache": 80e9}
    figure = roofline({"graphs": graphs, "ceilings": ceilings})
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert all(name in words for name in POINTS)
    assert png(figure).startswith(b"\x89PNG")


def waited(reason: str = "no_companion", added_ms: float = 0.1) -> Waited:
    return Waited.of(
        [
            {"what": "build", "start_ns": 0, "end_ns": 2_000_000},
            {
                "what": "queue",
                "start_ns": 0,
                "end_ns": 2_000_000 + added_ms * 1e6,
                "reason": reason,
            },
            {"what": "compute", "start_ns": 3_000_000, "end_ns": 9_000_000},
        ]
    )


def test_what_the_window_adds_begins_when_features_are_built() -> None:
    one = waited(added_ms=0.15)
    assert (one.added_ms, one.build_ms) == (pytest.approx(0.15), 2.0)


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        ([waited()] * 3, set()),
        ([waited(), waited("window"), waited()], {"lone_no_companion_share"}),
        ([waited(added_ms=0.3)] * 2 + [waited()], {"lone_added_p50_ms"}),
        ([waited()] * 19 + [waited(added_ms=9.0)], set()),
    ],
)
def test_lone_figures_can_be_missed(found: list[Waited], missed: set[str]) -> None:
    figures = lone_figures(found)
    values = {name: figures[name] for name in TARGETS}
    unmet = {name for name, v in values.items() if v is None or not TARGETS[name].met(v)}
    assert unmet == missed
