"""The dry run: pods as processes of this machine behind a DNS name. There is no cluster here; what
its control plane would do, the test does."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from loadtest.operate.callers import UNTYPED, Callers, calling
from loadtest.operate.pods import FRONT, NAME, THINK, Pod, Pods, running
from python_backends.errors import Overloaded
from python_backends.peer import Peer

pytestmark = pytest.mark.server

PATIENCE_S = 30.0
PEOPLE = 6


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def pods() -> Iterator[Pods]:
    with running(words=["--log-format", "json"]) as found:
        yield found


@pytest.fixture(scope="module")
def front(pods: Pods) -> Pod:
    pod = pods.start(FRONT)
    pod.wait_until_ready()
    return pod


@contextmanager
def two_replicas(pods: Pods, front: Pod) -> Iterator[tuple[Pod, Pod, Callers]]:
    """The second one appears in DNS under load, and gets turns."""
    one = pods.start(THINK)
    one.wait_until_ready()
    pods.publish()
    until(lambda: front.is_ready)
    with calling(front.grpc_address, PEOPLE) as callers:
        callers.people = 1
        until(lambda: callers.served(one.grpc_address) > 0)  # the proxy has asked DNS
        callers.asked.clear()
        callers.people = PEOPLE
        until(lambda: callers.served(one.grpc_address) > PEOPLE)
        two = pods.start(THINK)
        two.wait_until_ready()
        assert callers.served(two.grpc_address) == 0
        pods.publish()
        until(lambda: callers.served(two.grpc_address) > PEOPLE)
        yield one, two, callers
    for pod in (one, two):
        if pod.process.poll() is None:
            pod.kill()
    pods.publish()


def test_a_replica_that_drains_ends_its_turns_and_nothing_fails(pods: Pods, front: Pod) -> None:
    with two_replicas(pods, front) as (one, two, callers):
        pods.names.remove(NAME, two.host)
        two.terminate()
        until(lambda: two.probe() == (503, json.dumps(["the server is being stopped"])))
        assert two.process.wait(PATIENCE_S) == 0
        told = [json.loads(line) for line in two.log.read_text().splitlines()]
        events = [one["event"] for one in told if one["process"] == "launcher"]
        assert events[-3:] == ["serving", "draining", "drained"]
        assert {"tritonserver", "launcher"} <= {one["process"] for one in told}
        since_s = time.monotonic()
        until(lambda: callers.served(one.grpc_address, since_s) > PEOPLE)
        callers.end()
    assert callers.failed() == []


@pytest.mark.full
def test_when_a_node_is_lost_its_turns_fail_typed_and_others_go_on(pods: Pods, front: Pod) -> None:
    with two_replicas(pods, front) as (one, two, callers):
        processes = [psutil.Process(two.process.pid)]
        processes += processes[0].children(recursive=True)
        for process in processes:
            process.send_signal(signal.SIGKILL)
        lost_s = time.monotonic()
        until(lambda: callers.served(one.grpc_address, lost_s + 1.0) > PEOPLE)
        assert callers.served(two.grpc_address, lost_s) == 0
        pods.publish()
        assert pods.names.addresses(NAME) == (one.host,)
        callers.end()
    failed = callers.failed()
    assert 0 < len(failed) <= PEOPLE
    assert UNTYPED not in {turn.outcome for turn in failed}
    assert all(turn.began_s < lost_s + 1.0 for turn in failed)


@pytest.mark.full
def test_a_probe_names_the_stage_whose_process_hangs_until_it_is_back(pods: Pods) -> None:
    pod = pods.start(THINK)
    pod.wait_until_ready()
    server = psutil.Process(pod.process.pid).children(recursive=True)
    [stub] = [one for one in server if one.name().startswith("triton_python")]
    os.kill(stub.pid, signal.SIGSTOP)
    until(lambda: pod.probe()[0] == 503)
    assert "emu_think" in pod.probe()[1]
    assert pod.probe("/live")[0] == 200, "the watchdog is to bring it back, not a new container"
    until(lambda: pod.is_ready)
    pod.kill()


SOUND = "front: front\nservers: {front: {}, sound: {stages: [vocoder]}}\n"


@pytest.mark.full
def test_a_stage_without_a_queue_that_hangs_is_named_until_it_goes_on(tmp_path: Path) -> None:
    """Nobody but the probe asks it: a watchdog sees only that its process is there."""
    (tmp_path / "sound.yaml").write_text(SOUND)
    with running(tmp_path / "sound.yaml", {}) as pods:
        pod = pods.start("sound")
        pod.wait_until_ready()
        server = psutil.Process(pod.process.pid).children(recursive=True)
        [stub] = [one for one in server if one.name().startswith("triton_python")]
        os.kill(stub.pid, signal.SIGSTOP)
        until(lambda: pod.probe()[0] == 503)
        assert "vocoder" in pod.probe()[1]
        assert pod.probe("/live")[0] == 200, "it is only busy, for all that is known yet"
        os.kill(stub.pid, signal.SIGCONT)
        until(lambda: pod.is_ready)
        pod.terminate()
        assert pod.process.wait(PATIENCE_S) == 0


@pytest.mark.full
def test_a_front_that_drains_refuses_new_turns_and_ends_open_ones(pods: Pods, front: Pod) -> None:
    replica = pods.start(THINK)
    replica.wait_until_ready()
    pods.publish()
    asyncio.run(_drained_front(front))
    assert front.process.wait(PATIENCE_S) == 0


async def _drained_front(front: Pod) -> None:
    caller = Peer(front.grpc_address)
    try:
        await _until_answered(caller)
        open_turns = [asyncio.create_task(_turn(caller)) for _ in range(PEOPLE)]
        await asyncio.sleep(0.1)
        front.terminate()
        assert await _refusal(caller) == "draining"
        assert all(await asyncio.gather(*open_turns))
    finally:
        await caller.close()


async def _refusal(caller: Peer) -> str:
    """The reason of the first turn that is not taken."""
    while True:
        try:
            await _turn(caller)
        except Overloaded as refused:
            return refused.reason


async def _until_answered(caller: Peer) -> None:
    """The proxy looks at DNS once a second."""
    while True:
        try:
            await _turn(caller)
            return
        except Overloaded:
            await asyncio.sleep(0.1)


async def _turn(caller: Peer) -> int:
    """How many answers it had."""
    sound = {"AUDIO": np.zeros((1, 16000), np.float32)}
    name = f"turn-{time.monotonic_ns()}"
    answers = caller.stream("emu_door", sound, turn=name, parameters={}, silence_s=10.0)
    return len([answer async for answer in answers])
