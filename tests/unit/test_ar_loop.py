"""The AR loop: batching, cancellation and faults, on an engine of twenty lines."""

import gc
import json
import threading
import time
import weakref
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from python_backends.ar_loop.lane import Flight
from python_backends.ar_loop.loop import DecodeLoop
from python_backends.ar_loop.sequence import Sequence, Work
from python_backends.ar_loop.settings import LoopSettings
from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request
from python_backends.bridge.meters import Tally
from python_backends.errors import InvalidInput, StageFailed
from python_backends.scheduling.prefixes import Prefixes
from python_backends.slot_engine.command import Command, Drawn, Result, Tokens
from tests import fakes

END = 99
SETTINGS = LoopSettings(
    task="converse",
    step_model="step",
    engine="bls",
    slots=3,
    capacity=32,
    prefill_chunk=4,
    max_new_tokens=8,
    max_waiting=5,
)


class CountingEngine:
    """Draws prompt sum, then one more each step, from what each row really holds."""

    def __init__(self, shelf: dict[int, list[int]] | None = None) -> None:
        self.shelf = {} if shelf is None else shelf
        self.rows: dict[int, list[int]] = {}
        self.commands: list[Command] = []
        self.fault: StageFailed | None = None
        self.poisoned: set[int] = set()

    def run(self, command: Command) -> Result:
        self.commands.append(command)
        if self.fault is not None:
            raise self.fault
        for keep in command.keeps:
            self.shelf[keep.key] = self.rows[keep.row][: keep.length]
            assert len(self.shelf[keep.key]) == keep.length
        for key in command.drops:
            del self.shelf[key]
        for move in command.moves:
            self.rows[move.target] = self.rows[move.source][: move.length]
        prefill = decode = None
        if (part := command.prefill) is not None:
            if part.restore is None:
                held = self.rows[part.row][: part.start] if part.start else []
            else:
                held = self.shelf[part.restore.key][: part.restore.length]
            assert len(held) == part.start
            self.rows[part.row] = held + part.tokens.tolist()
            if part.is_last:
                prefill = self._drawn([sum(self.rows[part.row])])
        if (step := command.decode) is not None:
            for row, (token, start) in enumerate(zip(step.tokens, step.starts, strict=True)):
                self.rows[row] = [*self.rows[row][:start], int(token)]
            decode = self._drawn([self.rows[row][-1] + 1 for row in range(len(step.tokens))])
        return Result(prefill, decode)

    def _drawn(self, tokens: list[int]) -> Drawn:
        kept = [-1 if token in self.poisoned else token for token in tokens]
        return Drawn(np.array(kept, np.int64)[:, None], np.zeros(len(kept), np.float32))


class Count(Sequence):
    """Counts up to a goal and answers with the numbers it passed."""

    def __init__(self, request: Request, prompt: list[int], goal: int) -> None:
        super().__init__(request, np.array(prompt, np.int64), SETTINGS.max_new_tokens)
        self.goal = goal
        self.passed: list[int] = []
        self.again: Work | None = None

    def advance(self, token: Tokens) -> bool:
        self.last = token[0]
        return int(token[0]) >= self.goal

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        self.passed.append(int(token[0]))

    def close(self, reason: str) -> Work | None:
        if self.again is not None:
            return self.again
        self.request.finish({"PASSED": np.array([self.passed], np.int64)})
        return None


class CountTask:
    width = 1

    def __init__(self) -> None:
        self.abandoned: list[str] = []
        self.delivered: list[int] = []

    def open(self, request: Request) -> list[Sequence]:
        prompt = request.required("PROMPT")[0].tolist()
        if not prompt:
            raise InvalidInput("PROMPT is empty")
        return [Count(request, prompt, goal=int(request.required("GOAL")[0, 0]))]

    def abandon(self, turn: str) -> None:
        self.abandoned.append(turn)

    def after_step(self, members: int) -> None:
        self.delivered.append(members)


class Bench:
    """A loop with its engine, driven by hand."""

    def __init__(self) -> None:
        self.engine, self.task = CountingEngine(), CountTask()
        self.loop = DecodeLoop(self.task, [self.engine], SETTINGS)
        self.senders: list[fakes.InferenceResponseSender] = []

    def arrive(self, prompt: list[int], goal: int, turn: str = "t", **parameters: int) -> None:
        native = fakes.arriving(
            {"PROMPT": np.array([prompt], np.int64), "GOAL": np.array([[goal]], np.int64)},
            request_id=turn,
            parameters=parameters,
        )
        self.senders.append(native.sender)
        request = Request(native, "count", lambda _: None)
        request.parse_options()
        self.loop._open(request)

    def run(self) -> None:
        while self.loop.busy:
            self.step()
            self.loop.check_integrity()

    def step(self) -> None:
        """The next step of the loop, once nothing is being computed."""
        self.land()
        self.loop.step()

    def land(self) -> None:
        """Wait until no command is being run."""
        for flight in self.flights:
            flight.done.exception()

    @property
    def flights(self) -> list[Flight]:
        return [lane.flight for lane in self.loop._lanes if lane.flight is not None]

    def passed(self, index: int) -> list[int]:
        return [int(n) for n in self.senders[index].values()[0]["PASSED"][0]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_prompt_is_prefilled_in_chunks_and_decoded_to_its_end(bench: Bench) -> None:
    bench.arrive([1, 2, 3, 4, 5], goal=18)
    bench.run()
    assert bench.passed(0) == [15, 16, 17, 18]
    assert [len(c.prefill.tokens) for c in bench.engine.commands if c.prefill] == [3, 2]


def test_concurrent_sequences_share_steps_and_each_gets_what_it_gets_alone(bench: Bench) -> None:
    cases = [([1, 2], 7), ([10] * 6, 64), ([5], 9), ([3, 3, 3], 12), ([20], 22)]
    for index, (prompt, goal) in enumerate(cases):
        bench.arrive(prompt, goal, turn=f"t{index}")
    bench.run()
    for index, (prompt, goal) in enumerate(cases):
        assert bench.passed(index) == list(range(sum(prompt), goal + 1))[:8]
    assert max(len(c.decode.tokens) for c in bench.engine.commands if c.decode) == 3


def test_commands_are_numbered_without_gaps(bench: Bench) -> None:
    bench.arrive([1], goal=4)
    bench.run()
    numbers = [command.number for command in bench.engine.commands]
    assert numbers == list(range(len(numbers)))


def test_host_work_is_done_while_the_next_step_is_computed(bench: Bench) -> None:
    in_flight: list[bool] = []
    bench.task.after_step = lambda members: in_flight.append(bool(bench.flights))
    bench.arrive([1], goal=5)
    bench.run()
    assert in_flight == [True, True, True, True, False]


def test_a_caller_is_not_answered_while_its_row_is_being_computed(bench: Bench) -> None:
    bench.arrive([1], goal=1000)
    bench.step()
    bench.loop._serve(CancelTurn("t"))
    assert bench.flights
    assert not bench.senders[0].finals
    bench.step()
    assert "code=CANCELLED" in bench.senders[0].error()
    assert not bench.loop.busy


def test_a_sequence_ends_at_its_limit(bench: Bench) -> None:
    bench.arrive([1], goal=1000)
    bench.run()
    assert bench.passed(0) == list(range(1, 9))


def test_a_cancelled_turn_leaves_within_one_step_and_the_others_go_on(bench: Bench) -> None:
    """Public cases E3 and G10."""
    bench.arrive([1], goal=8, turn="stays")
    bench.arrive([2], goal=9, turn="goes")
    for _ in range(3):
        bench.step()
    bench.loop._serve(CancelTurn("goes"))
    bench.step()
    assert "code=CANCELLED" in bench.senders[1].error()
    bench.run()
    assert bench.passed(0) == list(range(1, 9))
    assert bench.task.abandoned == ["goes"]


def test_a_caller_that_vanished_frees_its_slot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("python_backends.bridge.request.POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr("python_backends.ar_loop.loop.LOOK_S", 0.0)
    bench.arrive([1], goal=1000)
    bench.step()
    bench.senders[0].cancelled = True
    bench.step()  # it is seen while this one is under way
    bench.step()
    assert not bench.loop.members()
    assert "code=CANCELLED" in bench.senders[0].error()


def test_a_turn_whose_time_is_over_frees_its_slot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public case E3."""
    monkeypatch.setattr("python_backends.ar_loop.loop.LOOK_S", 0.0)
    bench.arrive([1], goal=1000, deadline_ms=5)
    bench.arrive([2], goal=1003)
    time.sleep(0.01)
    bench.step()
    bench.step()
    assert "code=DEADLINE_MISSED" in bench.senders[0].error()
    assert len(bench.loop.members()) == 1


def test_bad_input_fails_alone(bench: Bench) -> None:
    bench.arrive([1], goal=3)
    bench.arrive([], goal=3)
    bench.run()
    assert "PROMPT is empty" in bench.senders[1].error()
    assert bench.passed(0) == [1, 2, 3]


def test_a_row_that_is_not_finite_fails_alone(bench: Bench) -> None:
    bench.engine.poisoned = {12}
    bench.arrive([1], goal=4, turn="well")
    bench.arrive([10], goal=15, turn="ill")
    bench.run()
    assert "not finite" in bench.senders[1].error()
    assert bench.passed(0) == [1, 2, 3, 4]


def test_a_failed_command_ends_its_rows_and_the_waiting_are_served_afterwards(
    bench: Bench,
) -> None:
    for index in range(5):
        bench.arrive([index + 1], goal=9, turn=f"t{index}")
    for _ in range(4):
        bench.step()
    bench.land()
    bench.engine.fault = StageFailed("the engine is gone")
    bench.step()
    bench.land()
    bench.engine.fault = None
    bench.run()
    assert all("the engine is gone" in bench.senders[i].error() for i in range(3))
    assert bench.passed(3) == list(range(4, 10))
    assert bench.engine.commands[-1].number < len(bench.engine.commands) - 1


def test_more_than_may_wait_are_refused_with_a_time_to_come_back(bench: Bench) -> None:
    """Public cases E1 and E9."""
    for index in range(6):
        bench.arrive([1], goal=3, turn=f"t{index}")
    bench.step()
    error = bench.senders[5].error()
    assert "code=OVERLOADED" in error
    assert "retry_after_ms=" in error
    bench.run()
    assert bench.passed(0) == [1, 2, 3]


class Twice(CountTask):
    """Counts again, off the loop, before it answers."""

    def open(self, request: Request) -> list[Sequence]:
        first, second = (Count(request, [1], goal=3) for _ in range(2))

        def again() -> Sequence:
            if request.required("GOAL")[0, 0] < 0:
                raise StageFailed("no second try")
            return second

        first.again = again
        return [first]


def served(*requests: fakes.InferenceRequest, cancel: str = "") -> None:
    """Run a loop over what has arrived, until everything is answered."""
    loop, inbox = DecodeLoop(Twice(), [CountingEngine()], SETTINGS), Inbox()
    for native in requests:
        inbox.put(Arrived(Request(native, "count", lambda _: None)))
    thread = threading.Thread(target=loop.run, args=[inbox])
    thread.start()
    if cancel:
        inbox.put(CancelTurn(cancel))
    for native in requests:
        native.sender.wait()
    inbox.put(Closed())
    thread.join()


def counting(goal: int, turn: str = "t") -> fakes.InferenceRequest:
    return fakes.arriving({"GOAL": np.array([[goal]], np.int64)}, request_id=turn)


def test_a_sequence_may_be_followed_by_another_made_off_the_loop() -> None:
    requests = [counting(3, f"t{index}") for index in range(4)]
    served(*requests)
    for native in requests:
        assert native.sender.values()[0]["PASSED"].tolist() == [[1, 2, 3]]


def test_a_follow_up_that_fails_answers_its_request() -> None:
    request = counting(-1)
    served(request)
    assert "no second try" in request.sender.error()


class Sibling(Count):
    """Goes on as soon as it may, and never answers."""

    may_go_on: threading.Event

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        assert self.may_go_on.wait(fakes.WAIT_S)
        super().deliver(token, score, no_speech)

    def close(self, reason: str) -> Work | None:
        return None


class Pair(CountTask):
    """Two sequences a request; the first one is followed up by work that waits to be released."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on, self.release = (threading.Event() for _ in range(3))
        self.was_open: list[bool] = []

    def open(self, request: Request) -> list[Sequence]:
        first, second = Count(request, [1], goal=1), Sibling(request, [10], goal=1000)
        second.may_go_on = self.go_on

        def again() -> Sequence:
            self.begun.set()
            assert self.release.wait(fakes.WAIT_S)
            self.was_open.append(request.is_open)
            if request.required("GOAL")[0, 0] < 0:
                raise ZeroDivisionError
            return Count(request, [1], goal=1)

        first.again = again
        return [first, second]


class Running:
    """A loop on its own thread, with the first sequence of a pair being followed up."""

    def __init__(self, engine: CountingEngine, goal: int = 3) -> None:
        self.task, self.inbox, native = Pair(), Inbox(), counting(goal)
        self.sender = native.sender
        self.fault: Exception | None = None
        self.loop = DecodeLoop(self.task, [engine], SETTINGS)
        self.inbox.put(Arrived(Request(native, "count", lambda _: None)))
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self.task.begun.wait(fakes.WAIT_S)

    def _run(self) -> None:
        try:
            self.loop.run(self.inbox)
        except ZeroDivisionError as fault:
            self.fault = fault

    def end(self) -> None:
        self.task.go_on.set()
        self.task.release.set()
        self.inbox.put(Closed())
        self.thread.join()


def test_a_request_stays_open_until_its_follow_up_returns_though_a_sibling_has_failed() -> None:
    engine = CountingEngine()
    engine.poisoned = {12}
    running = Running(engine)
    running.task.go_on.set()
    assert not running.sender.ended.wait(0.05)
    running.task.release.set()
    assert "not finite" in running.sender.error()
    running.end()
    assert running.task.was_open == [True]


def test_a_cancelled_request_stays_open_until_its_follow_up_returns() -> None:
    running = Running(CountingEngine())
    running.inbox.put(CancelTurn("t"))
    running.task.go_on.set()
    assert not running.sender.ended.wait(0.05)
    running.task.release.set()
    assert "code=CANCELLED" in running.sender.error()
    running.end()
    assert running.task.was_open == [True]


def test_a_bug_in_a_follow_up_ends_the_loop() -> None:
    running = Running(CountingEngine(), goal=-1)
    running.task.go_on.set()
    running.task.release.set()
    running.thread.join()
    assert running.fault is not None


def test_a_bug_of_the_loop_waits_for_what_is_followed_up() -> None:
    class Broken(CountingEngine):
        def run(self, command: Command) -> Result:
            if task.go_on.is_set():
                threading.Timer(0.05, task.release.set).start()
                raise ZeroDivisionError
            return super().run(command)

    task = Pair()
    loop, inbox = DecodeLoop(task, [Broken()], SETTINGS), Inbox()
    inbox.put(Arrived(Request(counting(3), "count", lambda _: None)))
    threading.Thread(target=lambda: task.begun.wait() and task.go_on.set()).start()
    with pytest.raises(ZeroDivisionError):
        loop.run(inbox)
    assert task.was_open == [True]


def test_nothing_is_followed_up_for_a_request_that_failed_in_the_same_step(bench: Bench) -> None:
    bench.engine.poisoned = {11}
    begun: list[Request] = []
    request = Request(native := counting(3), "count", lambda _: None)
    ill, doubtful = Count(request, [10], goal=99), Count(request, [1], goal=1)

    def again() -> Sequence:
        begun.append(request)
        raise StageFailed("not reached")

    doubtful.again = again
    bench.loop._join([ill, doubtful])
    bench.run()
    bench.loop._worker.shutdown()
    assert "not finite" in native.sender.error()
    assert not begun


def test_a_prompt_that_no_row_holds_fails_alone(bench: Bench) -> None:
    """Public case G3."""
    bench.arrive([1], goal=3, turn="fits")
    bench.arrive([1] * 32, goal=3, turn="too long")
    bench.run()
    assert "code=INVALID_INPUT" in bench.senders[1].error()
    assert bench.passed(0) == [1, 2, 3]


def test_unknown_tasks_and_engines_are_refused_at_load() -> None:
    known = {**SETTINGS.__dict__}
    with pytest.raises(ValueError, match="in_process"):
        LoopSettings(**{**known, "engine": "gpu"})
    with pytest.raises(ValueError, match="transcribe"):
        LoopSettings(**{**known, "task": json.dumps("x")})


class Metered(Bench):
    """Its clock stands still unless the test moves it."""

    def __init__(self, task: CountTask | None = None, engine: CountingEngine | None = None) -> None:
        super().__init__()
        self.now, self.tally = 0.0, Tally()
        self.loop = DecodeLoop(
            task or self.task,
            [engine or self.engine],
            SETTINGS,
            lambda: self.now,
            meters=self.tally,
        )

    def arrive(self, prompt: list[int], goal: int, turn: str = "t") -> None:
        super().arrive(prompt, goal, turn)
        self.loop.members()[-1].payload.request.arrived_ns = int(self.now * 1e9)

    def told(self) -> dict[str, list[float]]:
        """Everything told since the last time, by name and label."""
        found: dict[str, list[float]] = {}
        for name, labels, value in self.tally.take():
            found.setdefault(" ".join([name, *(v for _, v in labels)]), []).append(value)
        return found


def test_every_step_tells_how_long_it_took_and_who_has_waited_how_long_for_it() -> None:
    class Slow(CountingEngine):
        """Takes a quarter of a second for its first command."""

        def run(self, command: Command) -> Result:
            bench.now = 0.75
            return super().run(command)

    bench = Metered(engine=Slow())
    bench.arrive([1], 3)
    bench.now = 0.5
    bench.step()
    assert bench.told()["queue_seconds"] == [0.5]
    bench.loop._lanes[0].flight.done.result()
    bench.now = 9.0  # the loop sees to it later, which is no part of the step
    bench.step()
    told = bench.told()
    assert told["step_seconds"] == [0.25]
    assert "queue_seconds" not in told
    assert [told[f"slots {state}"] for state in ("running", "waiting", "free")] == [[1], [0], [2]]
    bench.run()
    assert bench.told()["slots free"][-1] == SETTINGS.slots
    assert bench.senders[0].error() == ""


def test_a_prompt_of_several_chunks_has_waited_until_the_first_of_them() -> None:
    bench = Metered()
    bench.arrive(list(range(10)), 60)
    bench.run()
    assert bench.told()["queue_seconds"] == [0.0]


def test_a_request_of_several_sequences_has_waited_once() -> None:
    class Pair(CountTask):
        def open(self, request: Request) -> list[Sequence]:
            return [*super().open(request), *super().open(request)]

    bench = Metered(Pair())
    bench.arrive([1], 4)
    bench.run()
    assert bench.told()["queue_seconds"] == [0.0]


def test_those_without_a_slot_are_told_as_waiting() -> None:
    bench = Metered()
    for number in range(5):
        bench.arrive([1], 50, f"t{number}")
    told: dict[str, list[float]] = {}
    while told.get("slots running") != [3]:
        bench.step()
        told = bench.told()
    assert (told["slots waiting"], told["slots free"]) == ([2], [0])
    bench.run()


def test_a_step_that_failed_has_no_duration() -> None:
    bench = Metered()
    bench.engine.fault = StageFailed("the device is gone")
    bench.arrive([1], 4)
    bench.run()
    assert "step_seconds" not in bench.told()
    assert "the device is gone" in bench.senders[0].error()


class Lanes(Bench):
    """Two engines behind one queue, with a store of prefixes."""

    def __init__(self) -> None:
        super().__init__()
        self.engines = [CountingEngine(self.engine.shelf) for _ in range(2)]
        prefixes = Prefixes(byte_limit=200, token_bytes=1, least=2)
        self.loop = DecodeLoop(self.task, self.engines, SETTINGS, prefixes=prefixes)


def test_two_engines_serve_one_queue_and_everybody_gets_what_it_gets_alone() -> None:
    bench = Lanes()
    cases = [([1, 2], 7), ([10] * 6, 64), ([5], 9), ([3, 3, 3], 12), ([20], 22)]
    for index, (prompt, goal) in enumerate(cases):
        bench.arrive(prompt, goal, turn=f"t{index}")
    bench.run()
    for index, (prompt, goal) in enumerate(cases):
        assert bench.passed(index) == list(range(sum(prompt), goal + 1))[:8]
    assert all(engine.commands for engine in bench.engines)
    prompts = [sum(bool(c.prefill) for c in engine.commands) for engine in bench.engines]
    assert sum(prompts) == 6


def test_an_engine_that_fails_takes_only_its_own_with_it() -> None:
    bench = Lanes()
    for index in range(4):
        bench.arrive([10 * (index + 1)], goal=1000, turn=f"t{index}")
    bench.step()
    bench.land()
    bench.engines[0].fault = StageFailed("this engine is gone")
    bench.step()
    bench.land()
    bench.engines[0].fault = None
    bench.run()
    lost = [sender for sender in bench.senders if sender.error()]
    assert lost
    assert len(lost) < 4
    assert all("this engine is gone" in sender.error() for sender in lost)


class Two(CountTask):
    """Two sequences a request; the second one answers."""

    def open(self, request: Request) -> list[Sequence]:
        first, second = Count(request, [1], goal=1000), Count(request, [50], goal=1000)
        return [first, second]


def test_a_request_with_sequences_at_two_engines_is_ended_when_both_have_landed() -> None:
    class Held(CountingEngine):
        go_on = threading.Event()

        def run(self, command: Command) -> Result:
            assert self.go_on.wait(fakes.WAIT_S)
            return super().run(command)

    held, quick = Held(), CountingEngine()
    loop = DecodeLoop(Two(), [held, quick], SETTINGS)
    native = counting(0)
    loop._open(Request(native, "count", lambda _: None))
    loop.step()
    lanes = loop._lanes
    assert all(lane.flight for lane in lanes)
    loop._serve(CancelTurn("t"))
    lanes[1].flight.done.exception()
    loop.step()
    assert not native.sender.finals, "one engine still computes for it"
    held.go_on.set()
    lanes[0].flight.done.exception()
    loop.step()
    assert "code=CANCELLED" in native.sender.error()
    assert not loop.members()
    loop.check_integrity()


class Remembering(CountTask):
    """Sequences belong to the session that their turn is named after: "a/1" is of "a"."""

    def open(self, request: Request) -> list[Sequence]:
        (one,) = super().open(request)
        one.session = request.turn.split("/")[0]
        one.written = lambda length: [*one.prompt.tolist(), *one.passed][:length]
        return [one]


@pytest.fixture
def talking() -> Lanes:
    bench = Lanes()
    bench.loop._task = Remembering()
    return bench


def test_the_next_turn_of_a_session_computes_only_what_is_new(talking: Lanes) -> None:
    talking.arrive([1, 2, 3, 4, 5], goal=18, turn="a/1")
    talking.run()
    talking.arrive([1, 2, 3, 4, 5, 15, 16, 17, 7], goal=1000, turn="a/2")
    talking.run()
    chunks = [c.prefill for engine in talking.engines for c in engine.commands if c.prefill]
    assert [len(one.tokens) for one in chunks if one.restore] == [2]
    assert talking.passed(1)[0] == sum([1, 2, 3, 4, 5, 15, 16, 17, 7])


def test_another_session_reuses_nothing_and_what_differs_is_computed(talking: Lanes) -> None:
    talking.arrive([1, 2, 3, 4, 5], goal=18, turn="a/1")
    talking.run()
    talking.arrive([1, 2, 3, 4, 5, 6], goal=30, turn="b/1")
    talking.arrive([1, 2, 9, 9, 9], goal=30, turn="a/2")
    talking.run()
    restored = [
        c.prefill.restore.length
        for engine in talking.engines
        for c in engine.commands
        if c.prefill and c.prefill.restore
    ]
    assert restored == [2]
    assert (talking.passed(1)[0], talking.passed(2)[0]) == (21, 30)


def test_after_an_engine_failed_nothing_is_restored_that_may_not_be_there(talking: Lanes) -> None:
    talking.arrive([1, 2, 3, 4, 5], goal=18, turn="a/1")
    talking.run()
    talking.engines[0].fault = talking.engines[1].fault = StageFailed("gone")
    talking.arrive([1], goal=3, turn="b/1")
    talking.run()
    talking.engines[0].fault = talking.engines[1].fault = None
    talking.arrive([1, 2, 3, 4, 5, 6], goal=30, turn="a/2")
    talking.run()
    assert talking.passed(2)[0] == 21
    restored = [c for e in talking.engines for c in e.commands if c.prefill and c.prefill.restore]
    assert not restored
    assert all(prefix.users == 0 for prefix in talking.loop.prefixes._sessions.values())


@pytest.mark.parametrize("seed", range(4))
def test_random_talks_are_answered_as_if_nothing_were_restored(seed: int) -> None:
    random, bench = Random(seed), Lanes()
    bench.loop._task = Remembering()
    told: dict[str, list[int]] = {}
    asked: list[list[int]] = []
    for number in range(60):
        session = random.choice("abcd")
        prompt = [*told.get(session, []), random.randint(1, 9)][-20:]
        bench.arrive(prompt, goal=sum(prompt) + random.randint(0, 4), turn=f"{session}/{number}")
        asked.append(prompt)
        told[session] = prompt
        for _ in range(random.randint(0, 6)):
            bench.step()
            bench.loop.check_integrity()
        if random.random() < 0.1:
            bench.loop._serve(CancelTurn(f"{session}/{number}"))
    bench.run()
    for index, prompt in enumerate(asked):
        if not bench.senders[index].error():
            assert bench.passed(index)[0] == sum(prompt)
    restored = sum(bool(c.prefill and c.prefill.restore) for e in bench.engines for c in e.commands)
    assert restored > 5
    for lane in bench.loop._lanes:  # whatever is still to be dropped goes with the next command
        bench.arrive([1], goal=2, turn=f"/{lane}")
        bench.arrive([1], goal=2, turn=f"/{lane} too")
    bench.run()
    assert set(bench.engine.shelf) == {p.key for p in bench.loop.prefixes._sessions.values()}


def test_a_turn_that_follows_at_once_finds_what_is_about_to_be_stored() -> None:
    bench = Lanes()
    bench.loop = DecodeLoop(Remembering(), [bench.engine], SETTINGS, prefixes=bench.loop.prefixes)
    bench.arrive([1, 2, 3, 4, 5], goal=15, turn="a/1")
    while not bench.senders[0].finals:
        bench.step()
    bench.arrive([1, 2, 3, 4, 5, 15, 9, 9], goal=1000, turn="a/2")
    bench.run()
    restored = [c.prefill.restore for c in bench.engine.commands if c.prefill]
    assert [one.length for one in restored if one] == [5]
    assert bench.passed(1)[0] == 48
    assert set(bench.engine.shelf) == {one.key for one in bench.loop.prefixes._sessions.values()}


def test_of_two_turns_of_a_session_that_end_together_one_is_stored_and_nothing_leaks() -> None:
    bench = Lanes()
    bench.loop = DecodeLoop(Remembering(), [bench.engine], SETTINGS, prefixes=bench.loop.prefixes)
    for number, prompt in enumerate([[1, 2], [3, 4]]):
        bench.arrive(prompt, goal=1000, turn=f"a/{number}")
    bench.run()
    bench.arrive([7, 7], goal=14, turn="b/1")
    bench.run()
    assert set(bench.engine.shelf) == {one.key for one in bench.loop.prefixes._sessions.values()}


def test_as_many_run_as_there_are_bytes_for_what_each_may_grow_to() -> None:
    bench = Bench()
    settings = replace(SETTINGS, engine="in_process", kv_bytes=26)
    bench.loop = DecodeLoop(bench.task, [bench.engine], settings)
    for number in range(4):
        bench.arrive([1, 2], goal=1000, turn=f"t{number}")  # 2 + 7 tokens of one byte
    bench.run()
    assert max(len(c.decode.tokens) for c in bench.engine.commands if c.decode) == 2
    assert all(bench.passed(number) == list(range(3, 11)) for number in range(4))
    bench.loop = DecodeLoop(bench.task, [bench.engine], replace(settings, kv_bytes=8))
    bench.arrive([1, 2], goal=1000, turn="larger than all")
    bench.run()
    assert "reason=bytes" in bench.senders[-1].error()
    assert "9 bytes of KV are needed; the stage has 8" in bench.senders[-1].error()


def test_nothing_is_kept_of_requests_that_have_ended(bench: Bench) -> None:
    opened: list[weakref.ref[Request]] = []
    for number in range(20):
        bench.arrive([1, 2], goal=6, turn=f"t{number}")
        opened.append(weakref.ref(bench.loop.members()[-1].payload.request))
        if number % 4 == 3:
            bench.loop._serve(CancelTurn(f"t{number}"))
            bench.run()
    bench.run()
    gc.collect()
    assert [one() for one in opened if one() is not None] == []


def test_what_follows_up_is_not_kept_waiting_by_newcomers_for_ever() -> None:
    loop = DecodeLoop(Twice(), [CountingEngine()], SETTINGS)
    first = counting(3, "retried")
    loop._open(Request(first, "count", lambda _: None))
    for number in range(200):
        for flight in [lane.flight for lane in loop._lanes if lane.flight]:
            flight.done.exception()
        all(map(loop._serve, loop._inbox.take(0)))
        if len(loop.waiting) < 4:
            loop._open(Request(counting(3, f"new {number}"), "count", lambda _: None))
        loop.step()
    assert first.sender.finals


def test_a_cancel_that_comes_with_the_last_token_is_not_lost() -> None:
    loop = DecodeLoop(Twice(), [CountingEngine()], SETTINGS)
    native = counting(3)
    loop._open(Request(native, "count", lambda _: None))
    while not any(member.generated == 2 for member in loop.members()):
        for flight in [lane.flight for lane in loop._lanes if lane.flight]:
            flight.done.exception()
        loop.step()
    loop._serve(CancelTurn("t"))
    loop._lanes[0].flight.done.exception()
    while loop.busy:
        loop.step()
    assert "code=CANCELLED" in native.sender.error()
    assert not loop._following
