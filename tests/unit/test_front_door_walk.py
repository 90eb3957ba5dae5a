"""A turn on its way through the stages: order, stages that are away, full, or end under it."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2

from python_backends.bridge.meters import Entry, Tally
from python_backends.errors import Overloaded, StageError, StageFailed
from python_backends.front_door.history import Histories
from python_backends.ordering.prompt import Utterance
from python_backends.peer import Answer, Outputs
from python_backends.walking import stages as watching
from python_backends.walking.asking import Asking
from python_backends.walking.route import Route, Step
from python_backends.walking.stages import Stages
from python_backends.walking.walk import AHEAD, Deliver, walk
from tests import fakes

NUMBERS = Route(
    tuple(Step(model, {"N": "N", "G": "G"}, {"N": "N"}) for model in ("split", "slow", "pair")),
    ("N",),
)
Number = int


def of(*numbers: Number) -> Outputs:
    return {"N": np.array(numbers)}


def walked(
    ask: Callable[[str, list[Number], Callable[..., Awaitable[None]]], Awaitable[None]],
    *given: Number,
) -> list[list[Number]]:
    """What arrives at the end of NUMBERS; `ask` is given a model, numbers and a way to answer."""
    found: list[list[Number]] = []

    async def asked(step: Step, tensors: Outputs, deliver: Deliver) -> None:
        async def answer(*numbers: Number) -> None:
            await deliver(of(*numbers))

        await ask(step.model, tensors["N"].tolist(), answer)

    def emit(tensors: Outputs) -> None:
        found.append(tensors["N"].tolist())

    asyncio.run(walk(NUMBERS, asked, of(*given), emit))
    return found


def test_answers_keep_their_order_though_later_requests_are_quicker() -> None:
    under_way = most = 0

    async def ask(model: str, given: list[Number], answer: Callable[..., Awaitable[None]]) -> None:
        nonlocal under_way, most
        if model == "split":
            for number in given:
                await answer(number)
            return
        if model == "slow":
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.05 / (1 + given[0]))
            under_way -= 1
            await answer(*given)
            return
        await answer(*given, 0)
        await asyncio.sleep(0)
        await answer(*given, 1)

    numbers = range(2 * AHEAD)
    assert walked(ask, *numbers) == [[n, chunk] for n in numbers for chunk in (0, 1)]
    assert most == AHEAD


def test_the_first_error_ends_a_walk_and_all_that_is_under_way() -> None:
    cancelled: list[Number] = []

    async def ask(model: str, given: list[Number], answer: Callable[..., Awaitable[None]]) -> None:
        if model == "split":
            for number in given:
                await answer(number)
        elif given == [1]:
            raise StageFailed("broken", stage=model)
        else:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                cancelled.extend(given)
                raise

    with pytest.raises(StageFailed, match="broken"):
        walked(ask, 0, 1, 2)
    assert sorted(cancelled) == [0, 2]


def test_a_step_that_answers_nothing_ends_the_walk_without_an_answer() -> None:
    async def ask(model: str, given: list[Number], answer: Callable[..., Awaitable[None]]) -> None:
        """Nothing."""

    assert walked(ask, 1) == []


def ensemble(*wires: tuple[str, dict[str, str], dict[str, str]]) -> Any:
    config = model_config_pb2.ModelConfig(name="all")
    config.input.add(name="AUDIO")
    config.output.add(name="SPEECH")
    for model, takes, gives in wires:
        config.ensemble_scheduling.step.add(
            model_name=model, input_map=takes, output_map=gives, model_version=-1
        )
    return config


def test_a_route_is_the_ensembles_and_takes_only_what_is_there() -> None:
    route = Route.of(
        ensemble(
            ("a", {"X": "AUDIO"}, {"Y": "y"}), ("b", {"Y": "y", "X": "AUDIO"}, {"Z": "SPEECH"})
        )
    )
    assert route.models == ("a", "b")
    assert route.steps[1].inputs({"y": np.zeros(1)}).keys() == {"Y"}
    assert route.answer({"SPEECH": np.zeros(1), "y": np.zeros(1)}).keys() == {"SPEECH"}
    with pytest.raises(StageFailed, match=r"step b of all takes \['w'\]"):
        Route.of(ensemble(("b", {"Y": "w"}, {})))


Script = Callable[[], Iterator[Answer]]


class FakePeer:
    """Answers as scripted, request after request."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.asked: list[str] = []

    async def stream(self, model: str, *_: Any, **__: Any) -> Any:
        self.asked.append(model)
        for answer in self.scripts.pop(0)():
            await asyncio.sleep(0)
            yield answer


def answers(*numbers: Number) -> Script:
    return lambda: (Answer(of(n), last=n == numbers[-1]) for n in numbers)


def fails(error: StageError, *numbers: Number) -> Script:
    def script() -> Iterator[Answer]:
        yield from answers(*numbers)()
        raise error

    return script


AWAY = StageFailed("Request for unknown model: 'think' has no available versions")
FULL = Overloaded("8 wait", stage="think", retry_after_ms=1)


def asked(
    peer: Any, stages: Stages | None = None, hold_s: float = 0.5
) -> tuple[list[Number], list[str]]:
    """What one request to think brings, and stages that were found full."""
    found: list[Number] = []
    full: list[str] = []

    async def deliver(tensors: Outputs) -> None:
        found.extend(tensors["N"].tolist())

    async def run() -> None:
        asking = Asking(
            peer,
            stages or Stages(["think"], lambda models: []),
            turn="t",
            parameters=dict,
            silence_s=5.0,
            hold_s=hold_s,
            refused=lambda stage, for_s: full.append(stage),
        )
        await asking.ask(Step("think", {"N": "N"}, {"N": "N"}), of(1), deliver)

    asyncio.run(run())
    return found, full


@pytest.mark.parametrize("error", [AWAY, FULL], ids=["away", "full"])
def test_a_request_that_a_stage_has_not_begun_is_sent_again(error: StageError) -> None:
    peer = FakePeer(fails(error), fails(error), answers(7, 8))
    found, full = asked(peer)
    assert found == [7, 8]
    assert len(peer.asked) == 3
    assert full == (["think", "think"] if error is FULL else [])


def test_one_that_was_begun_is_not() -> None:
    for error in (AWAY, FULL, StageFailed("broken")):
        with pytest.raises(type(error)):
            asked(FakePeer(fails(error, 1)))
    with pytest.raises(StageFailed, match="broken"):
        asked(FakePeer(fails(StageFailed("broken"))))


def test_a_turn_that_takes_too_many_bytes_now_is_sent_again_and_closes_the_door_to_nobody() -> None:
    greedy = Overloaded("no bytes", stage="think", reason="bytes", retry_after_ms=1)
    assert asked(FakePeer(fails(greedy), answers(1))) == ([1], [])


def test_a_stage_is_waited_for_so_long_and_no_longer() -> None:
    with pytest.raises(Overloaded) as caught:
        asked(FakePeer(*[fails(AWAY)] * 20), hold_s=0.12)
    assert (caught.value.reason, caught.value.stage) == ("stage", "think")
    assert caught.value.retry_after_ms == 1000
    with pytest.raises(Overloaded, match="8 wait"):
        asked(FakePeer(fails(Overloaded("8 wait", retry_after_ms=900))), hold_s=0.12)


@pytest.fixture
def sleeper() -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    """Starts processes that do nothing."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_request_that_came_while_two_processes_were_there_is_not_told_of_the_end_of_the_first(
    sleeper: Callable[[], "subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public case F7: a stage that is loaded again takes requests while its old process ends."""
    monkeypatch.setattr(watching, "LOOK_S", 0.01)
    alive, tally = [sleeper()], Tally()

    async def run() -> None:
        stages = Stages(["think"], lambda models: [("think", p.pid) for p in alive], tally)
        told: list[int] = []

        async def inside(number: int) -> None:
            try:
                async with stages.inside("think"):
                    await asyncio.sleep(fakes.WAIT_S)
            except StageError:
                told.append(number)

        watcher = asyncio.create_task(stages.watch())
        await asyncio.sleep(0.05)
        early = asyncio.create_task(inside(1))
        await asyncio.sleep(0.05)
        alive.append(sleeper())
        await asyncio.sleep(0.05)
        late = asyncio.create_task(inside(2))
        await asyncio.sleep(0.05)
        alive.pop(0).kill()
        await asyncio.wait_for(early, fakes.WAIT_S)
        await asyncio.sleep(0.05)
        assert told == [1]
        assert stages.is_up("think")
        assert [value for _, _, value in tally.take()] == [0, 1, 0, 1]  # replaced, not restarted
        alive.pop().kill()
        await asyncio.wait_for(late, fakes.WAIT_S)
        assert told == [1, 2]
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)

    asyncio.run(run())


def test_of_three_processes_the_second_keeps_its_requests_when_the_first_ends(
    sleeper: Callable[[], "subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public case F7: loaded again while the process before the last has not ended yet."""
    monkeypatch.setattr(watching, "LOOK_S", 0.01)
    alive, tally = [sleeper()], Tally()

    async def run() -> None:
        stages = Stages(["think"], lambda models: [("think", p.pid) for p in alive], tally)
        told: list[int] = []

        async def inside(number: int) -> None:
            try:
                async with stages.inside("think"):
                    await asyncio.sleep(fakes.WAIT_S)
            except StageError:
                told.append(number)

        watcher = asyncio.create_task(stages.watch())
        tasks = []
        for number in (1, 2, 3):
            await asyncio.sleep(0.05)
            tasks.append(asyncio.create_task(inside(number)))
            await asyncio.sleep(0.05)
            if number < 3:
                alive.append(sleeper())
        for number in (1, 2, 3):
            assert told == [*range(1, number)]
            alive.pop(0).kill()
            await asyncio.wait_for(tasks[number - 1], fakes.WAIT_S)
            await asyncio.sleep(0.05)
        assert told == [1, 2, 3]
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        assert [value for _, _, value in tally.take()] == [0, 1, 0, 1, 0]

    asyncio.run(run())


def test_whoever_is_inside_a_stage_that_ends_is_told_and_others_wait_for_the_next(
    sleeper: Callable[[], "subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.01)
    alive, tally = [sleeper()], Tally()

    async def run() -> tuple[float, list[str]]:
        stages = Stages(
            ["think", "native"], lambda models: [("think", p.pid) for p in alive], tally
        )
        told: list[str] = []

        async def inside(model: str) -> None:
            try:
                async with stages.inside(model):
                    await asyncio.sleep(fakes.WAIT_S)
            except StageError as error:
                told.append(f"{error.stage} {error.reason}")

        watcher = asyncio.create_task(stages.watch())
        await asyncio.sleep(0.05)
        tasks = [asyncio.create_task(inside("think")) for _ in range(2)]
        native = asyncio.create_task(inside("native"))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        alive.pop().kill()
        await asyncio.gather(*tasks)
        took_s = time.monotonic() - began
        assert not stages.is_up("think")
        with pytest.raises(StageFailed):
            async with stages.inside("think"):
                pass
        alive.append(sleeper())
        await asyncio.wait_for(stages.until_up("think"), fakes.WAIT_S)
        await stages.until_up("native")
        cancelled = asyncio.create_task(inside("think"))
        await asyncio.sleep(0.02)
        for task in (cancelled, native, watcher):
            task.cancel()
        ended = await asyncio.gather(cancelled, native, watcher, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        return took_s, told

    took_s, told = asyncio.run(run())
    of = (("of", "think"),)
    assert tally.take() == [
        ("restarts_total", of, 0.0),
        ("stage_up", of, 1),
        ("stage_up", of, 0),
        ("restarts_total", of, 1.0),
        ("stage_up", of, 1),
    ]
    assert told == ["think ended"] * 2
    assert took_s < fakes.WAIT_S


async def until_told(tally: Tally, wanted: int) -> list[Entry]:
    """What was told until the stage is said to be up, or not, once more."""
    found: list[Entry] = []

    async def look() -> None:
        while ("stage_up", (("of", "think"),), wanted) not in found:
            found.extend(tally.take())
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), fakes.WAIT_S)
    return found


@pytest.mark.parametrize("old_turn", [True, False])
def test_a_stage_is_up_again_when_the_version_that_died_on_trial_serves_no_more(
    sleeper: Callable[[], "subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
    old_turn: bool,
) -> None:
    """The process of the version before has been there all the time, if it had a turn or not."""
    monkeypatch.setattr(watching, "LOOK_S", 0.01)
    alive, tally = {"think": sleeper(), "think.v2": sleeper()}, Tally()
    in_use = ["think"]

    async def run() -> None:
        stages = Stages(
            ["think"],
            lambda models: [(name, one.pid) for name, one in alive.items() if name in models],
            tally,
            lambda stages: tuple(in_use),
        )
        watcher = asyncio.create_task(stages.watch())
        await until_told(tally, 1)
        in_use[:] = ["think", "think.v2"] if old_turn else ["think.v2"]
        await until_told(tally, 1)
        alive.pop("think.v2").kill()
        await until_told(tally, 0)
        in_use[:] = ["think"]
        await until_told(tally, 1)
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)

    asyncio.run(run())


def test_a_stage_is_down_when_the_process_that_took_a_place_has_ended_unseen(
    sleeper: Callable[[], "subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.01)
    alive, tally = [sleeper()], Tally()

    async def run() -> None:
        stages = Stages(["think"], lambda models: [("think", p.pid) for p in alive], tally)
        watcher = asyncio.create_task(stages.watch())
        await until_told(tally, 1)
        alive.append(sleeper())
        first = alive.pop(0)
        monkeypatch.setattr(stages, "_younger", lambda life: [alive.pop().pid] if alive else [])
        first.kill()
        await until_told(tally, 0)
        assert not stages.is_up("think")
        alive.append(sleeper())
        told = await until_told(tally, 1)
        assert ("restarts_total", (("of", "think"),), 1.0) in told
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)

    asyncio.run(run())


def said(*texts: str) -> list[Utterance]:
    return [Utterance("user", line) for line in texts]


def test_conversations_are_bounded_in_number_length_and_time() -> None:
    some = Histories(most=2, most_chars=10, keep_s=60)
    some.add("a", said("1234", "5678"), 0.0)
    some.add("a", said("90123"), 1.0)
    assert some.of("a", 1.0) == said("5678", "90123")
    some.add("b", said("x" * 99), 2.0)
    assert some.of("b", 2.0) == said("x" * 99)
    some.add("c", said("z"), 3.0)
    assert some.of("a", 3.0) == []
    some.check_integrity()
    assert some.of("c", 62.9) == said("z")
    assert some.of("c", 63.0) == []
    assert len(some) == 0
