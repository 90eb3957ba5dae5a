"""A probe is a small valid request for any model."""

import struct
from typing import Any

import numpy as np
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from deploy.readiness import covered_by_a_turn, probe_request
from deploy.repositories import read_models
from deploy.server_log import ServerLog
from deploy.settings import REPOSITORIES


def config(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_a_stage_with_control_is_asked_through_it_alone() -> None:
    request = probe_request(
        config("""name: "stage" backend: "ar_loop" max_batch_size: 1
        input { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }
        input { name: "CONTROL" data_type: TYPE_STRING dims: [ 1 ] optional: true }""")
    )
    (given,) = request.inputs
    assert (given.name, given.datatype, list(given.shape)) == ("CONTROL", "BYTES", [1, 1])
    word = b'{"probe": true}'
    assert request.raw_input_contents[0] == struct.pack("<I", len(word)) + word


def test_a_graph_gets_all_its_inputs_with_lengths_of_one() -> None:
    request = probe_request(
        config("""name: "graph" backend: "onnxruntime" max_batch_size: 8
        input { name: "X" data_type: TYPE_FP32 dims: [ -1, 66 ] }
        input { name: "LENGTH" data_type: TYPE_INT64 dims: [ 1 ] }""")
    )
    assert [list(given.shape) for given in request.inputs] == [[1, 16, 66], [1, 1]]
    assert len(request.raw_input_contents[0]) == 4 * 16 * 66
    assert np.frombuffer(request.raw_input_contents[1], np.int64).tolist() == [1]


def test_a_sequence_model_is_asked_for_a_sequence_of_one() -> None:
    request = probe_request(
        config("""name: "vad" backend: "onnxruntime" max_batch_size: 64
        input { name: "AUDIO" data_type: TYPE_FP32 dims: [ 512 ] }
        sequence_batching { oldest { max_candidate_sequences: 64 } }""")
    )
    assert request.parameters["sequence_start"].bool_param
    assert request.parameters["sequence_end"].bool_param


def test_every_model_of_this_project_has_a_probe_or_is_covered_by_a_turn() -> None:
    models = read_models(REPOSITORIES, {})
    covered = {name for name, model in models.items() if covered_by_a_turn(model.config)}
    assert covered == {"turn", "voice_turn", "transcribe", "speak"}
    for name in models.keys() - covered:
        request = probe_request(models[name].config)
        assert len(request.raw_input_contents) == len(request.inputs) > 0
    step = probe_request(models["think_step"].config)
    assert np.frombuffer(step.raw_input_contents[0], np.int64).tolist() == [-1]


def test_a_log_tells_which_model_failed_and_why(tmp_path: Any) -> None:
    log = ServerLog(tmp_path / "log")
    log.path.write_text(
        """I1 model_lifecycle.cc:839] "successfully loaded 'add'"\n"""
        """E1 model_lifecycle.cc:642] "failed to load 'think' version 1: Internal: """
        """ValueError: no weights\\n\\nAt:\\n  /x/model.py(46): load\\n"\n+----+\n"""
    )
    assert log.loaded() == ["add"]
    lines = log.account("it ended").splitlines()
    assert lines[:2] == ["it ended", "model 'think': Internal: ValueError: no weights"]
    assert not log.lost_a_port()
    assert "+----+" not in lines
