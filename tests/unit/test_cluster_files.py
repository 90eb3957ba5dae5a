"""What proxies and people read of a cluster, what its figures say, and orders to it."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.cluster.control import Control, order
from deploy.cluster.files import ClusterState, ServerState, placement, write_json
from deploy.errors import DeployError, PlanError
from deploy.figures import open_requests, rows
from deploy.processes import SHARED_MEMORY, start_time
from python_backends.remote_stage.placement import Placement


def server(name: str, *stages: str, draining: bool = False, port: int = 1) -> ServerState:
    return ServerState(
        name=name,
        server=name.rpartition("-")[0],
        stages=stages,
        proxies=(),
        device=None,
        grpc=f"127.0.0.1:{port}",
        http="",
        metrics="",
        phase="ready",
        draining=draining,
    )


SERVERS = [
    server("front-1", "vad", port=1),
    server("think-1", "think", port=2),
    server("think-2", "think", port=3, draining=True),
    server("speak-1", "prosody", "acoustic", port=4),
]


def test_the_placement_lists_the_replicas_of_every_stage_that_is_called_apart() -> None:
    found = placement(["think", "acoustic", "encode"], SERVERS)
    assert found == {
        "stages": {
            "acoustic": [{"name": "speak-1", "address": "127.0.0.1:4", "draining": False}],
            "encode": [],
            "think": [
                {"name": "think-1", "address": "127.0.0.1:2", "draining": False},
                {"name": "think-2", "address": "127.0.0.1:3", "draining": True},
            ],
        }
    }


def test_proxies_read_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    reader = Placement(path, "think")
    assert reader.changed() is None
    write_json(path, placement(["think"], SERVERS))
    listed = reader.changed()
    assert listed is not None
    assert [(one.name, one.draining) for one in listed] == [("think-1", False), ("think-2", True)]
    assert reader.changed() is None
    write_json(path, placement(["think"], SERVERS[:2]))
    assert len(reader.changed() or []) == 1


def state(started: int) -> ClusterState:
    return ClusterState("p", "/p.yaml", "front", os.getpid(), started, "/c", tuple(SERVERS))


def test_a_state_that_is_read_again_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "cluster" / "p.json"
    started = start_time(os.getpid())
    assert started is not None
    state(started).write(path)
    assert ClusterState.read(path) == state(started)
    assert ClusterState.read(path).alive
    assert not state(started - 1).alive
    assert [entry.name for entry in path.parent.iterdir()] == ["p.json"]


def test_a_state_that_is_missing_or_broken_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="nothing is known of 'p'"):
        ClusterState.read(tmp_path / "p.json")
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(DeployError, match=r"p\.json cannot be read"):
        ClusterState.read(tmp_path / "p.json")


def test_open_requests_are_those_of_the_newest_process_of_each_stage() -> None:
    metrics = """# HELP tristage_open_requests Requests
# TYPE tristage_open_requests gauge
tristage_open_requests{started="12.5",stage="think"} 3.000000
tristage_open_requests{started="9.75",stage="think"} 8
tristage_open_requests{model="x",stage="acoustic",version="1"} 1
tristage_open_requests{stage="acoustic"} 2
# TYPE nv_inference_count counter
nv_inference_count{model="think",version="1"} 7
"""
    assert open_requests(metrics) == {"think": 3, "acoustic": 3}
    assert open_requests("") == {}


def test_a_stage_that_was_loaded_again_and_is_idle_has_nothing_open() -> None:
    metrics = """# TYPE tristage_open_requests gauge
tristage_open_requests{started="1.0",stage="think"} 4
# TYPE tristage_steps_total counter
tristage_steps_total{started="2.0",stage="think"} 1
"""
    assert open_requests(metrics) == {}
    assert [(one.name, one.value) for one in rows(metrics)] == [("tristage_steps_total", 1.0)]


def refuse(stage: str, count: int, tell: Callable[[str], None]) -> None:
    tell(f"{stage} to {count}")
    if count > 2:
        raise PlanError("too many")


@pytest.fixture
def path() -> Path:
    return SHARED_MEMORY / f"tristage-test-{uuid4().hex[:8]}"


def test_an_order_is_obeyed_and_what_is_done_is_told(path: Path) -> None:
    control = Control(path, refuse)
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        assert list(order(path, "think", 2)) == ["think to 2"]
        with pytest.raises(DeployError, match="too many"):
            list(order(path, "think", 3))
    finally:
        control.close()
    assert not path.exists()


def test_an_order_that_nobody_takes_is_an_error(path: Path) -> None:
    with pytest.raises(DeployError, match="does not listen"):
        list(order(path, "think", 2))


def test_a_caller_who_leaves_does_not_undo_the_order(path: Path) -> None:
    done = threading.Event()

    def scale(stage: str, count: int, tell: Callable[[str], None]) -> None:
        for number in range(100):
            tell(json.dumps(number))
        done.set()

    control = Control(path, scale)
    try:
        next(order(path, "think", 2))
        assert done.wait(5.0)
    finally:
        control.close()
