"""Replicas come and go, and are started again. Servers are stand-ins; nothing listens anywhere."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import keeper
from deploy.cluster import drain, scaling
from deploy.cluster.events import Event
from deploy.cluster.roster import Roster
from deploy.errors import PlanError, ServerFailed
from deploy.settings import Ports, Settings
from tests.unit.cluster_world import StandServer, World

PATIENCE_S = 10.0
SERVERS = {
    "think": {"stages": ["think"], "device": "gpu", "replicas": 2},
    "speak": {"stages": ["prosody", "acoustic", "vocoder"], "environment": {"LOUD": "1"}},
}
DEVICES = {"gpu": {"gpu": 3, "cores": [0], "bytes": "2GiB"}, "cpu": {}}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Time is short here."""
    monkeypatch.setattr(drain, "SETTLE_S", 0.0)
    monkeypatch.setattr(scaling, "FORGET_S", 0.0)
    monkeypatch.setattr(scaling, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(keeper, "TICK_S", 0.01)
    monkeypatch.setattr(keeper, "FIRST_BACK_OFF_S", 0.01)
    made = World(tmp_path, SERVERS, devices=DEVICES, stages={"think": {"bytes": "600MiB"}})
    made.open()
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def placed(world: World, stage: str) -> dict[str, bool]:
    """Replica -> draining, as proxies find it."""
    found = json.loads((world.out / "placement.json").read_text())
    return {one["name"]: one["draining"] for one in found["stages"][stage]}


def test_every_replica_is_started_with_its_part_of_the_plan(world: World) -> None:
    assert world.names == ["front-1", "think-1", "think-2", "speak-1"]
    names = ("think-1", "speak-1", "front-1")
    think, speak, front = (world.server(name).settings for name in names)
    assert think.environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert think.environment["TRISTAGE_BOARD"] == "/dev/shm/tristage-test-gpu-board"
    assert think.environment["TRISTAGE_PLACEMENT"] == str(world.out / "placement.json")
    assert think.cores == (0,)
    assert speak.environment["LOUD"] == "1"
    assert "TRISTAGE_BOARD" not in speak.environment
    assert set(front.proxies) == {"think", "prosody", "acoustic", "vocoder"}
    assert speak.proxies == ()
    assert set(placed(world, "think")) == {"think-1", "think-2"}


def test_no_two_servers_have_a_port_in_common(world: World) -> None:
    ports = [world.server(name).ports for name in world.names]
    assert len({port for one in ports for port in (one.http, one.grpc, one.metrics)}) == 12


def test_ports_of_the_plan_go_to_the_replicas_of_the_plan(tmp_path: Path) -> None:
    ports = {"http": 8000, "grpc": 8001, "metrics": 8002}
    made = World(tmp_path, {"think": {"stages": ["think"], "replicas": 2, "ports": ports}})
    settings = [made.blueprint.settings(made.blueprint.whole("think"), {}) for _ in range(3)]
    assert [one.ports for one in settings] == [
        Ports(8000, 8001, 8002),
        Ports(8010, 8011, 8012),
        None,
    ]


def test_every_server_takes_the_configs_that_the_plan_names(tmp_path: Path) -> None:
    made = World(tmp_path, {"llm": {"stages": ["think"]}}, config_name="served")
    for server in ("front", "llm"):
        replica = made.blueprint.whole(server)
        assert made.blueprint.settings(replica, {}).config_name == "served"


def test_a_replica_is_placed_once_it_has_started(world: World) -> None:
    assert world.scaling.add("think", {"EMULATION": "elsewhere"}, "cpu") == "think-3"
    assert placed(world, "think") == {"think-1": False, "think-2": False, "think-3": False}
    settings = world.server("think-3").settings
    assert settings.environment["EMULATION"] == "elsewhere"
    assert settings.environment["TRISTAGE_BOARD"].endswith("cpu-board")
    assert world.kinds("think-3") == ["ready", "added"]


def test_one_stage_of_a_server_can_be_replicated_alone(world: World) -> None:
    assert world.scaling.add("vocoder", {}, None) == "vocoder-1"
    assert world.server("vocoder-1").settings.models == ("vocoder",)
    assert set(placed(world, "vocoder")) == {"speak-1", "vocoder-1"}
    assert set(placed(world, "acoustic")) == {"speak-1"}


@pytest.mark.parametrize(
    ("what", "device", "reason"),
    [
        ("encode", None, "'encode' is in the front .*give them a server of their own"),
        ("front", None, "is in the front"),
        ("lamp", None, "no server or stage 'lamp'; known: acoustic"),
        ("think", "tpu", "no device 'tpu'; devices: gpu, cpu"),
    ],
)
def test_what_cannot_be_added_is_refused(
    world: World, what: str, device: str | None, reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        world.scaling.add(what, {}, device)


def test_a_replica_that_its_device_has_no_room_for_is_refused(world: World) -> None:
    world.scaling.add("think", {}, None)
    with pytest.raises(PlanError, match=r"devices\.gpu\.bytes: 2 GiB, but its servers need 2\.34"):
        world.scaling.add("think", {}, None)
    assert world.names[-1] == "think-3"


def test_a_removed_replica_gets_nothing_new_until_nothing_is_open(world: World) -> None:
    seen: list[dict[str, bool]] = []
    world.open_requests = [3, 0, 1, 0, 0]
    server = world.server("think-2")
    world.at_a_look = lambda: seen.append(placed(world, "think"))
    world.scaling.remove("think-2", 5.0)
    assert seen == [{"think-1": False, "think-2": True}] * 5
    assert placed(world, "think") == {"think-1": False}
    assert not server.alive
    assert world.kinds("think-2") == ["ready", "draining", "removed"]


def test_a_removed_replica_stays_while_turns_will_come_back_to_it(world: World) -> None:
    looks: list[None] = []
    world.remote_turns = [2, 1, 1, 0, 0]
    world.at_a_look = lambda: looks.append(None)
    world.scaling.remove("think-2", 5.0)
    assert len(looks) == 5


def test_a_replica_that_does_not_drain_gets_turns_again(world: World) -> None:
    world.open_requests = [2]
    with pytest.raises(ServerFailed, match="think-2 still has 2 open requests"):
        world.scaling.remove("think-2", 0.05)
    assert placed(world, "think") == {"think-1": False, "think-2": False}
    assert world.server("think-2").alive


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("speak-1", "speak-1 must stay: nobody else serves prosody, acoustic, vocoder"),
        ("front-1", "front-1 must stay"),
        ("think-7", "no replica 'think-7'; replicas: front-1, think-1"),
    ],
)
def test_a_replica_that_is_needed_stays(world: World, name: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        world.scaling.remove(name, 1.0)


def test_a_name_is_never_used_twice(world: World) -> None:
    world.scaling.scale("think", 3)
    world.scaling.scale("think", 1)
    assert [name for name in world.names if "think" in name] == ["think-1"]
    world.scaling.scale("think", 2)
    assert [name for name in world.names if "think" in name] == ["think-1", "think-4"]


def test_a_stage_is_scaled_by_itself_and_the_smaller_servers_leave_first(world: World) -> None:
    world.scaling.scale("speak", 2)
    world.scaling.scale("vocoder", 4)
    assert world.names[-3:] == ["speak-2", "vocoder-1", "vocoder-2"]
    world.scaling.scale("vocoder", 2)
    assert world.names[-1] == "speak-2"
    with pytest.raises(PlanError, match="at least one vocoder must stay, not 0"):
        world.scaling.scale("vocoder", 0)


def test_a_server_that_has_ended_is_started_again(world: World) -> None:
    server = world.server("think-1")
    server.failures = 2
    server.alive = False
    until(lambda: world.member("think-1").phase == "ready" and server.alive)
    assert world.kinds("think-1") == ["ready", "down", "failed", "failed", "back"]
    assert world.member("think-1").restarts == 3
    assert server.told == ["start", "restart", "restart", "restart"]
    assert "think-1: its process has ended" in world.said


def test_a_server_is_kept_until_it_cannot_be_started_so_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(keeper, "TICK_S", 0.01)
    monkeypatch.setattr(keeper, "FIRST_BACK_OFF_S", 0.01)
    told: list[str] = []
    server: Any = StandServer(Settings(out=tmp_path), told.append)
    server.start()
    with keeper.keeping(server, lambda kind, what: told.append(kind), attempts=3) as kept:
        server.failures, server.alive = 2, False
        until(lambda: "back" in told)
        server.failures, server.alive = 3, False
        kept.wait()
        assert not server.alive
    assert told == ["down", "failed", "failed", "back", "down", "failed", "failed", "failed"]


def test_a_server_that_is_well_outlives_its_keeper(tmp_path: Path) -> None:
    server: Any = StandServer(Settings(out=tmp_path), print)
    server.start()
    with keeper.keeping(server, lambda kind, what: None):
        pass
    assert server.told == ["start"]


def test_a_draining_server_that_ends_is_not_started_again(world: World) -> None:
    world.open_requests = [1]
    server = world.server("think-2")
    world.at_a_look = server.stop
    world.scaling.remove("think-2", 5.0)
    assert "restart" not in server.told
    assert "think-2" not in world.names


def test_who_hears_events_hears_them_in_place_of_progress_but_orders_hear_both(
    world: World,
) -> None:
    heard: list[Event] = []
    said: list[str] = []
    ordered: list[str] = []
    roster = Roster(world.plan, "other", world.out, said.append, heard.append)
    with roster.heard_by(ordered.append):
        roster.tell(world.member("think-1"), "lost", "its process has ended")
        roster.progress_of("think-1")("loading models")
    assert [(one.server, one.kind) for one in heard] == [("think-1", "lost")]
    assert said == ["think-1: loading models"]
    assert ordered == ["think-1: its process has ended", "think-1: loading models"]


def test_a_closed_cluster_takes_nobody_in(world: World) -> None:
    for one in world.roster.close():
        one.close()
    with pytest.raises(ServerFailed, match="being stopped"):
        world.scaling.add("think", {}, None)
    assert not (world.out / "cluster" / "plan.json").exists()
