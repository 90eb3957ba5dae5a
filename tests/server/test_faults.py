"""Processes of stages die under load, on the emulated device: who was inside is told."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tritonclient.grpc import service_pb2

from deploy.stubs import stubs
from loadtest.chaos import kills, storm
from loadtest.chaos.caller import DOOR, UNREACHABLE, Caller, Told, crowd
from loadtest.chaos.stand import STAGES, Stand, standing
from tests.server.asking import asking

pytestmark = pytest.mark.server

PEOPLE = 8
BACK_S = 20.0


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(Path(tmp_path_factory.mktemp("out"))) as found:
        yield found


async def _loaded(stand: Stand, seconds: float, told: list[Told]) -> None:
    caller = Caller(stand.address)
    await crowd(caller, PEOPLE, time.monotonic() + seconds, told)
    await caller.close()


def wait_for_news(stand: Stand, wanted: str, before: int) -> None:
    """Until its keeper has told of it since so many news."""
    deadline = time.monotonic() + BACK_S
    while wanted not in {kind for _, kind, _ in stand.news[before:]}:
        assert time.monotonic() < deadline, stand.news
        time.sleep(0.05)


def sound(told: list[Told]) -> None:
    """Every turn has been answered once, in its caller's words or with a typed error."""
    assert [str(one.error) for one in told if one.outcome == "UNTYPED"] == []
    assert all(one.answered_once and one.is_its_own for one in told)
    assert any(one.outcome == "ok" for one in told)


def test_stages_that_are_loaded_again_under_load_lose_nobody_and_not_the_server(
    stand: Stand,
) -> None:
    """Public case F7.

    Two processes of a stage that shared a row of /metrics took the server down.
    """
    told: list[Told] = []

    async def run() -> None:
        load = asyncio.create_task(_loaded(stand, 6.0, told))
        for model in STAGES * 3:
            await asyncio.sleep(0.2)
            await asyncio.to_thread(stand.server.reload, model)
        await load

    asyncio.run(run())
    assert stand.server.alive
    sound(told)
    assert [str(one.error) for one in told if one.outcome != "ok"] == []
    assert stand.leaks_at_rest() == {}


def test_whoever_is_inside_a_stage_that_dies_is_told_and_everybody_else_is_served(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public case F3."""
    for name, value in {"PEOPLE": PEOPLE, "KILLS": 1, "WINDOW_S": 2.0, "WARM_UP_S": 2.0}.items():
        monkeypatch.setattr(kills, name, value)
    found = kills.kills(stand, Random(3), lambda done: None)
    figures = found.figures
    for name in ("not_answered_once", "cross_talk", "untyped_errors", "refused_without_retry"):
        assert figures[f"killed_{name}"] == 0, (name, found.detail)
    assert figures["killed_unreachable_for_no_reason"] == 0, found.detail
    assert figures["killed_past_answered_share"] in (0, 1), found.detail
    assert figures["killed_back_s_max"] != kills.AWAY_S, found.detail
    assert figures["killed_leaks"] == 0, found.detail
    assert found.detail["watchdog_failures"] == []


def test_turns_of_a_front_door_that_dies_end_at_their_callers(stand: Stand) -> None:
    told: list[Told] = []

    async def run() -> None:
        load = asyncio.create_task(_loaded(stand, 3.0, told))
        await asyncio.sleep(1.0)
        for stub in stubs(stand.server.pid, [DOOR]):
            os.kill(stub.pid, signal.SIGKILL)
        await load

    before = len(stand.absences)
    asyncio.run(run())
    sound(told)
    reasons = Counter(one.error.reason for one in told if one.error is not None)
    if len(stand.absences) == before:
        assert reasons == {"ended": PEOPLE}
    else:  # it took the server along, see deploy.keeper
        assert reasons.keys() <= {"ended", UNREACHABLE}


def test_a_server_that_ends_is_back_at_the_same_address_and_its_stages_are_watched_again(
    stand: Stand,
) -> None:
    """Public case F3: a stage that is killed may take the server along (server#8882)."""
    told: list[Told] = []
    before = len(stand.absences)

    async def run() -> None:
        load = asyncio.create_task(_loaded(stand, 3.0, told))
        await asyncio.sleep(1.0)
        os.kill(stand.server.pid, signal.SIGKILL)
        await stand.be_there()
        await load
        await _loaded(stand, 1.0, told)

    asyncio.run(run())
    sound(told)
    assert len(stand.absences) == before + 1
    gone = [one for one in told if one.error is not None and one.error.reason == UNREACHABLE]
    assert len(gone) >= PEOPLE
    assert told[-1].outcome == "ok"
    [victim] = stubs(stand.server.pid, ["emu_think"])
    reloaded = len(stand.news)
    os.kill(victim.pid, signal.SIGKILL)
    wait_for_news(stand, "reloaded", reloaded)
    assert stand.failures() == []


def test_a_shape_whose_bytes_are_too_many_to_be_counted_costs_one_process_and_not_the_server(
    stand: Stand,
) -> None:
    """Public case D6: 2**62 floats are 0 bytes to this server (2.51; later ones refuse them), which
    lets them pass, and the process dies of them before our code sees the request."""
    told: list[Told] = []
    before = len(stand.news)
    request = service_pb2.ModelInferRequest(model_name=DOOR)
    request.inputs.add(name="AUDIO", datatype="FP32", shape=[1, 2**62])
    request.raw_input_contents.append(b"")
    with asking(stand.address) as stub:
        messages = list(stub.ModelStreamInfer(iter([request]), timeout=BACK_S))
    assert [bool(one.error_message) for one in messages] == [True]
    wait_for_news(stand, "reloaded", before)
    asyncio.run(_loaded(stand, 1.0, told))
    sound(told)
    assert stand.failures() == []


def test_turns_that_nobody_waits_for_leave_nothing_behind(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public case M1: whatever is told bears its own turn's words."""
    monkeypatch.setattr(storm, "TURNS", 60)
    monkeypatch.setattr(storm, "WARM_UP_TURNS", 8)
    found = storm.storm(stand, Random(5), lambda done: None)
    for name in ("not_answered_once", "cross_talk", "untyped_errors", "leaks"):
        assert found.figures[f"storm_{name}"] == 0, (name, found.detail)
    assert found.figures["storm_patient_answered_share"] == 1, found.detail


def test_a_server_that_is_drained_serves_who_is_there_and_refuses_the_rest(stand: Stand) -> None:
    """The last test: the server is of no use after it."""

    async def run() -> tuple[list[Told], Told, bool]:
        caller = Caller(stand.address)
        open_turns = [asyncio.create_task(caller.speak()) for _ in range(4)]
        await asyncio.sleep(0.3)
        draining = asyncio.create_task(asyncio.to_thread(stand.server.drain, 20.0))
        await asyncio.sleep(0.2)
        late = await caller.speak()
        found = await asyncio.gather(*open_turns), late, await draining
        await caller.close()
        return found

    served, late, drained = asyncio.run(run())
    assert [one.outcome for one in served] == ["ok"] * 4
    assert late.error is not None
    assert late.error.reason == "draining"
    assert drained
