"""Stages are upgraded and rolled back while callers speak, on the emulated device."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.errors import BytesUnfit, UpgradeFailed
from deploy.figures import read_metrics, rows
from deploy.launcher import Server
from deploy.readiness import control_request, probing
from deploy.rolling.change import Terms
from deploy.stubs import stubs
from loadtest.chaos.caller import Caller, Told
from loadtest.operate.stand import (
    ACOUSTIC,
    LISTEN,
    THINK,
    Stand,
    is_mixed,
    release,
    standing,
    versions_of,
)
from tests.server.hanging import HANGING, LOADED

pytestmark = pytest.mark.server

PEOPLE = 8
BEFORE_S = AFTER_S = 1.5
TERMS = Terms(trial_s=2.0, drain_s=30.0)
QUICK = Terms(trial_s=0.2, drain_s=30.0)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("out")) as found:
        yield found


def under_load(stand: Stand, act: Callable[[], None]) -> list[Told]:
    """All turns of people who speak before, during and after something is done."""
    told: list[Told] = []

    async def run() -> None:
        caller, until_s = Caller(stand.server.grpc_address), [float("inf")]
        people = [asyncio.create_task(speak(caller, until_s)) for _ in range(PEOPLE)]
        await asyncio.sleep(BEFORE_S)
        try:
            await asyncio.to_thread(act)
            await asyncio.sleep(AFTER_S)
        finally:
            until_s[0] = 0.0
            await asyncio.gather(*people)
            await caller.close()

    async def speak(caller: Caller, until_s: list[float]) -> None:
        while time.monotonic() < until_s[0]:
            told.append(await caller.speak())

    asyncio.run(run())
    return told


def ways(told: list[Told]) -> list[str]:
    """How each turn was answered, in the order of their ends."""
    ended = sorted((one for one in told if one.outcome == "ok"), key=lambda one: one.end_ns)
    return [one.said[0].rsplit(" ", 1)[0] for one in ended]


def all_served(told: list[Told]) -> None:
    assert [str(one.error) for one in told if one.outcome != "ok"] == []
    assert all(one.answered_once and one.is_its_own for one in told)
    assert [one.said for one in told if is_mixed(one)] == []


def serving(stand: Stand, stage: str) -> int:
    return next(
        row.version
        for row in stand.upgrades.versions()
        if row.stage == stage and row.phase == "serving" and row.ready
    )


def all_back(stand: Stand) -> None:
    for stage in (THINK, ACOUSTIC, LISTEN):
        stand.upgrades.rollback(stage, QUICK)


def processes(stand: Stand) -> list[str]:
    """Of versions that are loaded beside others; none is at rest."""
    names = [f"{stage}.v{n}" for stage in (THINK, ACOUSTIC, LISTEN) for n in range(1, 20)]
    return [stub.model for stub in stubs(stand.server.pid, names)]


def alarms(stand: Stand) -> list[str]:
    """Stages that are down, or have died."""
    told = rows(read_metrics(stand.server.metrics_address))
    well = {"tristage_stage_up": 1.0, "tristage_restarts_total": 0.0}
    found = {f"{row.name} of {row.labels['of']}": row for row in told if row.name in well}
    assert {row.name for row in found.values()} == set(well)
    return [what for what, row in found.items() if row.value != well[row.name]]


def test_every_door_tells_how_many_turns_began_with_what(server: Server) -> None:
    with probing(server.grpc_address, server.access) as probe:
        for door in ("turn", "listen", "live"):
            order = control_request(server.config(door), {"epochs": True})
            assert probe.told(order, 5.0) == {"epochs": {}}


def test_a_version_and_the_way_back_lose_nobody_and_mix_no_turn(
    stand: Stand, tmp_path: Path
) -> None:
    folder = release(tmp_path / "new", [THINK, ACOUSTIC, LISTEN], "better piece")
    before = serving(stand, THINK)
    told = under_load(
        stand,
        lambda: stand.upgrades.upgrade([THINK, ACOUSTIC, LISTEN], folder=folder, terms=TERMS),
    )
    all_served(told)
    assert ways(told)[0] != ways(told)[-1] == "better piece"
    last = max(told, key=lambda one: one.sent_ns)
    for stage in (THINK, ACOUSTIC, LISTEN):
        assert versions_of(last, stage) == {str(serving(stand, stage))} != {str(before)}
    assert processes(stand) == []

    told = under_load(stand, lambda: all_back(stand))
    all_served(told)
    assert ways(told)[0] == "better piece"
    assert ways(told)[-1] == "emulated piece"
    assert serving(stand, THINK) == before
    assert processes(stand) == []
    assert alarms(stand) == []
    assert stand.news == []


SMALL = 'parameters { key: "bytes_requests" value { string_value: "1" } }'
"""No request fits."""


@pytest.mark.parametrize(
    ("words", "config", "gate", "why"),
    [
        ("broken", "", "", "not loaded"),
        ("never heard", "", "false", "its gate ended with 1"),
        ("never heard", SMALL, "", "request"),
    ],
)
def test_one_that_does_not_load_answer_or_pass_leaves_the_old_one_serving(
    stand: Stand, tmp_path: Path, words: str, config: str, gate: str, why: str
) -> None:
    folder = release(tmp_path / "new", [THINK], words)
    with (folder / THINK / "config.pbtxt").open("a") as file:
        file.write(config)
    before = serving(stand, THINK)

    def upgrade() -> None:
        with pytest.raises(UpgradeFailed, match=why):
            stand.upgrades.upgrade([THINK], folder=folder, terms=Terms(gate=gate))

    told = under_load(stand, upgrade)
    all_served(told)
    assert set(ways(told)) == {"emulated piece"}
    assert serving(stand, THINK) == before
    assert processes(stand) == []


def test_one_whose_process_ends_on_trial_is_taken_back(stand: Stand, tmp_path: Path) -> None:
    folder = release(tmp_path / "new", [ACOUSTIC])
    before, number = serving(stand, ACOUSTIC), 0

    def kill() -> None:
        nonlocal number
        deadline = time.monotonic() + 20
        while not number and time.monotonic() < deadline:
            time.sleep(0.1)
            moving = [row for row in stand.upgrades.versions() if row.stage == ACOUSTIC]
            draining = any(row.phase == "draining" for row in moving)
            number = next((r.version for r in moving if r.phase == "serving" and draining), 0)
        time.sleep(0.5)
        for stub in stubs(stand.server.pid, [f"{ACOUSTIC}.v{number}"]):
            os.kill(stub.pid, signal.SIGKILL)

    def upgrade() -> None:
        killing = threading.Thread(target=kill)
        killing.start()
        with pytest.raises(UpgradeFailed, match=r"process has ended|requests failed"):
            stand.upgrades.upgrade([ACOUSTIC], folder=folder, terms=Terms(trial_s=20.0))
        killing.join()

    told = under_load(stand, upgrade)
    failed = [one for one in told if one.outcome != "ok"]
    assert {one.error.code for one in failed if one.error} <= {"STAGE_FAILED"}
    assert all(versions_of(one, ACOUSTIC) <= {str(before), str(number)} for one in told)
    assert [one for one in told if is_mixed(one)] == []
    assert max(told, key=lambda one: one.sent_ns).outcome == "ok"
    assert serving(stand, ACOUSTIC) == before
    assert processes(stand) == []


@pytest.mark.full
def test_one_that_hangs_under_load_is_taken_back_and_ended(stand: Stand, tmp_path: Path) -> None:
    """It answers its first request and every probe."""
    folder = release(tmp_path / "new", [THINK])
    config = folder / THINK / "config.pbtxt"
    config.write_text(config.read_text().replace(LOADED, HANGING))
    terms = Terms(trial_s=6.0, answer_s=4.0, drain_s=3.0)
    before, news = serving(stand, THINK), list(stand.news)

    def upgrade() -> None:
        with pytest.raises(UpgradeFailed, match="it has answered nothing for 4 s"):
            stand.upgrades.upgrade([THINK], folder=folder, terms=terms)
        assert processes(stand) == []

    told = under_load(stand, upgrade)
    assert max(told, key=lambda one: one.sent_ns).outcome == "ok"
    assert {one.outcome for one in told if one.outcome != "ok"} <= {"STAGE_FAILED", "OVERLOADED"}
    assert serving(stand, THINK) == before
    assert stand.news == news


@pytest.mark.full
def test_an_upgrade_that_is_called_off_ends_as_if_it_had_not_been(
    stand: Stand, tmp_path: Path
) -> None:
    folder = release(tmp_path / "new", [THINK], "called off piece")
    before = serving(stand, THINK)

    def call_off(what: str) -> None:
        """When turns have been going there for a while."""
        if "on trial" in what:
            threading.Timer(3.0, lambda: stand.upgrades.rollback(THINK)).start()

    def upgrade() -> None:
        terms = Terms(trial_s=60.0)
        with pytest.raises(UpgradeFailed, match="called off"):
            stand.upgrades.upgrade([THINK], folder=folder, terms=terms, tell=call_off)

    told = under_load(stand, upgrade)
    all_served(told)
    assert "called off piece" in ways(told)
    assert ways(told)[-1] == "emulated piece"
    assert serving(stand, THINK) == before


@pytest.mark.full
@pytest.mark.parametrize("when", ["trial stood", "settling"])
def test_a_rollback_while_it_drains_or_settles_is_over_when_the_old_one_serves(
    stand: Stand, tmp_path: Path, when: str
) -> None:
    folder = release(tmp_path / "new", [THINK], "called off piece")
    before, back = serving(stand, THINK), list[threading.Thread]()
    told = list[str]()

    def call_off(what: str) -> None:
        """And go on when that has been heard."""
        if when in what:
            heard = threading.Event()

            def tell(answer: str) -> None:
                told.append(answer)
                heard.set()

            back.append(threading.Thread(target=stand.upgrades.rollback, args=(THINK, TERMS, tell)))
            back[0].start()
            assert heard.wait(10.0)

    def upgrade() -> None:
        with pytest.raises(UpgradeFailed, match="called off"):
            stand.upgrades.upgrade([THINK], folder=folder, terms=QUICK, tell=call_off)
        back[0].join()
        assert serving(stand, THINK) == before

    all_served(turns := under_load(stand, upgrade))
    assert processes(stand) == []
    assert ways(turns)[-1] == "emulated piece"
    assert [one.split(": ")[-1] for one in told[1:]] == ["serving again"]


def test_two_that_do_not_fit_are_refused_by_name(stand: Stand, tmp_path: Path) -> None:
    folder = release(tmp_path / "new", [THINK])
    config = folder / THINK / "config.pbtxt"
    config.write_text(
        config.read_text()
        + 'parameters { key: "bytes_process" value { string_value: "900GiB" } }\n'
    )
    with pytest.raises(BytesUnfit, match=rf"two versions at once.*{THINK}\.v\d+ 900"):
        stand.upgrades.upgrade([THINK], folder=folder)
    assert processes(stand) == []


@pytest.mark.full
def test_a_server_that_is_started_again_has_what_it_was_brought_to(
    stand: Stand, tmp_path: Path
) -> None:
    folder = release(tmp_path / "new", [THINK], "kept piece")
    stand.upgrades.upgrade([THINK], folder=folder, terms=QUICK)
    number = serving(stand, THINK)
    os.kill(stand.server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30.0
    while "back" not in {kind for kind, _ in stand.news}:
        assert time.monotonic() < deadline, stand.news
        time.sleep(0.1)
    told = under_load(stand, lambda: None)
    all_served(told)
    assert set(ways(told)) == {"kept piece"}
    assert versions_of(told[0], THINK) == {str(number)}
    stand.upgrades.rollback(THINK, QUICK)
    assert ways(under_load(stand, lambda: None))[-1] == "emulated piece"
