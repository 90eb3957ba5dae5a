"""The onnxruntime stand-in: batches, shapes, bad requests, implicit state, threads, refusals."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from deploy.launcher import Server
from deploy.processes import servers_naming
from deploy.settings import Settings
from tests.server import tiny

pytestmark = pytest.mark.server
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
MEET = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 500000 }"
IDLE_S = 1.0
SEQUENCES = """sequence_batching { max_sequence_idle_microseconds: 1000000
  oldest { max_candidate_sequences: 4 } state [ {
  input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 1 ]
  initial_state: { name: "zero" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } ] }"""


def threads(count: int) -> str:
    """Config text that asks for `count` threads."""
    return (
        'dynamic_batching { } parameters { key: "intra_op_thread_count" '
        f'value {{ string_value: "{count}" }} }}'
    )


def doubler(repository: Path, name: str, **more: Any) -> Path:
    """Y = X + X and Z = -X, for any number of columns."""
    nodes = [helper.make_node("Add", ["X", "X"], ["Y"]), helper.make_node("Neg", ["X"], ["Z"])]
    shape = ["batch", "n"]
    outputs = [("Y", FLOAT, shape), ("Z", FLOAT, shape)]
    return tiny.onnx_model(repository, name, nodes, [("X", FLOAT, shape)], outputs, **more)


def looker_up(repository: Path) -> None:
    """Y = squares[X]: an index above 9 is an error only the runtime sees."""
    squares = numpy_helper.from_array(np.arange(10, dtype=np.float32) ** 2, "squares")
    nodes = [helper.make_node("Gather", ["squares", "X"], ["Y"])]
    shape = ["batch", 1]
    tiny.onnx_model(
        repository,
        "squares",
        nodes,
        [("X", INT, shape)],
        [("Y", FLOAT, shape)],
        config=MEET,
        constants=[squares],
    )


def accumulator(repository: Path) -> None:
    """Y = X + the sum so far, which is implicit state."""
    nodes = [
        helper.make_node("Add", ["X", "SUM_IN"], ["Y"]),
        helper.make_node("Identity", ["Y"], ["SUM_OUT"]),
    ]
    shape = ["batch", 1]
    tiny.onnx_model(
        repository,
        "accumulate",
        nodes,
        [("X", FLOAT, shape), ("SUM_IN", FLOAT, shape)],
        [("Y", FLOAT, shape), ("SUM_OUT", FLOAT, shape)],
        config=SEQUENCES,
        states=["SUM_IN", "SUM_OUT"],
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("standin")
    repository = root / "models"
    doubler(repository, "double", config=MEET)
    doubler(repository, "ragged", config=MEET, ragged=True)
    doubler(repository, "one_thread", config=threads(1))
    doubler(repository, "three_threads", config=threads(3))
    looker_up(repository)
    accumulator(repository)
    doubler(repository, "missing").unlink()
    doubler(repository, "garbage").write_text("version https://git-lfs.github.com/spec/v1\n")
    doubler(repository, "misfit").write_bytes(
        tiny.onnx_model(
            root,
            "fixed",
            [helper.make_node("Neg", ["X"], ["Y"])],
            [("X", FLOAT, [1, "n"])],
            [("Y", FLOAT, [1, "n"])],
        ).read_bytes()
    )
    served = ["double", "ragged", "squares", "accumulate", "one_thread", "three_threads"]
    settings = Settings(repositories=[repository], models=served, out=root / "out")
    with Server(settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[InferenceServerClient]:
    connection = InferenceServerClient(server.grpc_address)
    yield connection
    connection.close()


def tensor(values: Any, datatype: str = "FP32") -> InferInput:
    """The input X."""
    array = np.array(values, np.float32 if datatype == "FP32" else np.int64)
    given = InferInput("X", list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


def all_at_once(
    client: InferenceServerClient, model: str, inputs: Sequence[InferInput]
) -> list[NDArray[Any] | InferenceServerException]:
    """Y of each request, or its error; all are sent before any answer is awaited."""
    answers: Queue[tuple[int, Any]] = Queue()
    for index, given in enumerate(inputs):

        def arrived(result: Any, error: Any, index: int = index) -> None:
            answers.put((index, error or result.as_numpy("Y")))

        client.async_infer(model, [given], arrived)
    found = dict(answers.get(timeout=20) for _ in inputs)
    return [found[index] for index in range(len(inputs))]


def executions(client: InferenceServerClient, model: str) -> int:
    """How many times the model has been executed."""
    return int(client.get_inference_statistics(model).model_stats[0].execution_count)


def test_requests_that_meet_share_one_call(client: InferenceServerClient) -> None:
    before = executions(client, "double")
    answers = all_at_once(client, "double", [tensor([[n, n]]) for n in range(4)])
    assert [list(y[0]) for y in answers] == [[2.0 * n] * 2 for n in range(4)]
    assert executions(client, "double") - before == 1


def test_different_shapes_in_one_execution_are_answered_each(
    client: InferenceServerClient,
) -> None:
    before = executions(client, "ragged")
    rows = [[[1.0]], [[2.0, 3.0]], [[4.0]], [[5.0, 6.0, 7.0]]]
    answers = all_at_once(client, "ragged", [tensor(row) for row in rows])
    assert [y.tolist() for y in answers] == [(2 * np.array(row)).tolist() for row in rows]
    assert executions(client, "ragged") - before == 1


def test_one_bad_request_fails_alone(client: InferenceServerClient) -> None:
    """Public case F4."""
    answers = all_at_once(client, "squares", [tensor([[n]], "INT64") for n in (2, 99, 3, 4)])
    assert [answers[index].tolist() for index in (0, 2, 3)] == [[[4.0]], [[9.0]], [[16.0]]]
    assert isinstance(answers[1], InferenceServerException)
    assert "onnxruntime:" in answers[1].message()
    assert answers[1].status() == "StatusCode.INVALID_ARGUMENT"


def test_only_the_outputs_that_were_asked_for_come_back(client: InferenceServerClient) -> None:
    result = client.infer("double", [tensor([[1.0]])], outputs=[InferRequestedOutput("Z")])
    assert result.as_numpy("Z").tolist() == [[-1.0]]
    assert result.as_numpy("Y") is None


def test_sequences_keep_their_own_state(client: InferenceServerClient) -> None:
    def add(value: float, sequence: int | str, *, start: bool = False, end: bool = False) -> float:
        flags = {"sequence_start": start, "sequence_end": end}
        result = client.infer("accumulate", [tensor([[value]])], sequence_id=sequence, **flags)
        return float(result.as_numpy("Y")[0, 0])

    assert [add(1, 7, start=True), add(10, "seven", start=True)] == [1, 10]
    assert [add(2, 7), add(20, "seven"), add(3, 7), add(30, "seven", end=True)] == [3, 30, 6, 60]
    assert [add(5, "seven", start=True, end=True), add(4, 7, end=True)] == [5, 10]


def test_a_sequence_that_starts_again_begins_at_zero(client: InferenceServerClient) -> None:
    def add(value: float, *, start: bool) -> float:
        result = client.infer(
            "accumulate", [tensor([[value]])], sequence_id=9, sequence_start=start
        )
        return float(result.as_numpy("Y")[0, 0])

    assert [add(1, start=True), add(1, start=False), add(5, start=True)] == [1, 2, 5]


def add(
    client: InferenceServerClient, sequence: int, *, start: bool = False, end: bool = False
) -> Any:
    """The sum of a sequence to which 1 is added."""
    flags = {"sequence_start": start, "sequence_end": end}
    result = client.infer("accumulate", [tensor([[1]])], sequence_id=sequence, **flags)
    return result.as_numpy("Y").item()


def test_a_sequence_that_is_over_or_was_idle_too_long_is_refused(
    client: InferenceServerClient,
) -> None:
    """Public case E5: behind its end, without a start, after a rest; each time at once."""
    assert [add(client, 21, start=True), add(client, 21, end=True)] == [1, 2]
    for sequence in (21, 22):
        with pytest.raises(InferenceServerException, match="START"):
            add(client, sequence)
    add(client, 23, start=True)
    time.sleep(2 * IDLE_S)
    with pytest.raises(InferenceServerException, match="START"):
        add(client, 23)
    assert add(client, 23, start=True, end=True) == 1


def test_places_of_abandoned_sequences_are_used_again(
    server: Server, client: InferenceServerClient
) -> None:
    """Public case E7: twice as many as there is room for leave without an end, and as many come;
    in between the server rests."""
    for sequence in range(100, 108):
        add(client, sequence, start=True)
    time.sleep(2 * IDLE_S)
    process = psutil.Process(server.pid)
    before_s = sum(process.cpu_times()[:2])
    time.sleep(IDLE_S)
    assert sum(process.cpu_times()[:2]) - before_s < IDLE_S / 2
    for sequence in range(200, 208):
        assert add(client, sequence, start=True) == 1
    assert [add(client, n, end=True) for n in (206, 207)] == [2, 2]


def test_thread_counts_are_honoured(server: Server) -> None:
    """Public case E10."""
    stubs = {
        words[8].removesuffix("_0_0"): pid
        for pid in servers_naming(server.shared_memory_prefix)
        if len(words := Path(f"/proc/{pid}/cmdline").read_text().split("\0")) == 11
    }
    count = {name: len(os.listdir(f"/proc/{pid}/task")) for name, pid in stubs.items()}
    assert count["three_threads"] - count["one_thread"] == 2


def stub_rss_mb(server: Server, model: str) -> float:
    """Resident memory of the process that serves a model."""
    for pid in servers_naming(server.shared_memory_prefix):
        if f"{model}_0_0" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    raise LookupError(model)


@pytest.mark.full
def test_memory_reaches_a_plateau_under_random_shapes(
    server: Server, client: InferenceServerClient
) -> None:
    """Public case E11."""
    lengths = np.random.default_rng(0).integers(1, 100_000, 3000)
    sizes = []
    for number, length in enumerate(lengths):
        client.infer("one_thread", [tensor(np.zeros((1, length)))])
        if number in (999, 2999):
            sizes.append(stub_rss_mb(server, "one_thread"))
    assert sizes[1] - sizes[0] < 10


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("missing", "run: make build"),
        ("garbage", "is no ONNX file"),
        ("misfit", "output Z: in config.pbtxt, not in the graph"),
        ("misfit", r"config \('TYPE_FP32', \[-1, -1\]\), graph \('TYPE_FP32', \[1, 'n'\]\)"),
    ],
)
def test_what_cannot_be_served_is_refused_at_load_with_the_reason(
    server: Server, client: InferenceServerClient, model: str, reason: str
) -> None:
    """Public cases J1, J2 and J7."""
    with pytest.raises(InferenceServerException, match=reason):
        client.load_model(model, headers=dict(server.access.metadata))
