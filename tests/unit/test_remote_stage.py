"""A stage that is served elsewhere: relayed to replicas that may drain, hang or die."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Request
from python_backends.bridge.meters import Meters
from python_backends.pieces import LAST_CHUNK, LAST_PIECE
from python_backends.remote_stage.loop import RemoteLoop
from python_backends.remote_stage.placement import VARIABLE, Placement
from python_backends.remote_stage.settings import RemoteSettings
from tests import fakes
from tests.unit.fake_triton import (
    FakeServer,
    Message,
    Script,
    chunk,
    end,
    failure,
    message,
    one_chunk_then_silence,
    serving,
    texts,
    two_pieces,
)

SETTINGS = RemoteSettings(controlled=True, probe_ms=20, lost_ms=300)
INPUTS = ("PIECE", "TEXT", "SESSION_ID", "EVENTS", "CONTROL")


def orders(request: Any) -> dict[str, Any]:
    """What a CONTROL request asks for; empty for any other."""
    names = [tensor.name for tensor in request.inputs]
    return json.loads(request.raw_input_contents[0][4:]) if names == ["CONTROL"] else {}


class Replica:
    """A scripted server that answers for its clock unless it hangs, and notes cancels."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.awake = threading.Event()
        self.awake.set()
        self.serves = True
        self.cancelled: list[str] = []
        self.served: list[Any] = []

    def script(self, request: Any, context: Any) -> Iterator[Message]:
        order = orders(request)
        if not order:
            self.served.append(request)
            yield from self._script(request, context)
            return
        self.awake.wait(5.0)
        if not self.serves:
            yield failure(request, "[tristage code=INVALID_INPUT stage=speak] CONTROL accepts ...")
            return
        if "cancel" in order:
            self.cancelled.append(order["cancel"])
        now = {"what": "clock", "start_ns": time.monotonic_ns() + 7_000_000_000, "host": "far"}
        yield message(request, final=True, EVENTS=texts(json.dumps(now)))


class Board(Meters):
    """Keeps the newest number of turns at each replica."""

    def __init__(self, turns: dict[str, int]) -> None:
        self._turns = turns

    def gauge(self, name: Any, value: float, **labels: str) -> None:
        assert name == "remote_turns"
        self._turns[labels["replica"]] = int(value)


class Bench:
    """A proxy in front of scripted replicas."""

    def __init__(self, folder: Path, replicas: Mapping[str, tuple[Replica, str]]) -> None:
        self.file = folder / "placement.json"
        self.replicas = {name: replica for name, (replica, _) in replicas.items()}
        self._addresses = {name: address for name, (_, address) in replicas.items()}
        self.turns: dict[str, int] = {}
        self.servers: list[FakeServer] = []
        self.inbox = Inbox()
        self.place()

    def place(self, *, draining: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> None:
        listed = [
            {"name": name, "address": address, "draining": name in draining}
            for name, address in self._addresses.items()
            if name not in without
        ]
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps({"stages": {"speak": listed}}))
        partial.replace(self.file)

    def arrive(self, turn: str = "t", piece: int = 0, flags: int = 3, **more: Any) -> Any:
        place = np.array([[piece, 0, flags]], np.int32)
        inputs = {"PIECE": place, "TEXT": fakes.text("hello"), **more.pop("inputs", {})}
        native = fakes.arriving(inputs, request_id=turn, parameters=more)
        request = Request(native, "speak", lambda _: None)
        request.parse_options()
        self.inbox.put(Arrived(request))
        return native.sender

    def regions(self) -> set[str]:
        """Shared memory that replicas were told of."""
        return {name for server in self.servers for name in server.regions}

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 5.0
        while not holds():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.005)


@contextmanager
def opened(
    folder: Path,
    *scripts: Script,
    settings: RemoteSettings = SETTINGS,
    inputs: tuple[str, ...] = INPUTS,
) -> Iterator[Bench]:
    with ExitStack() as stack:
        made: dict[str, tuple[Replica, str]] = {}
        servers: list[FakeServer] = []
        for number, script in enumerate(scripts, 1):
            replica = Replica(script)
            stack.callback(replica.awake.set)
            server, address = stack.enter_context(serving(replica.script))
            servers.append(server)
            made[f"speak-{number}"] = replica, address
        bench = Bench(folder, made)
        bench.servers = servers
        loop = RemoteLoop(
            "speak", inputs, settings, Placement(bench.file, "speak"), Board(bench.turns)
        )
        thread = threading.Thread(target=loop.run, args=[bench.inbox])
        thread.start()
        try:
            yield bench
        finally:
            bench.inbox.put(Closed())
            thread.join()


def back_at(bench: Bench, replica: str) -> bool:
    """A new turn has reached a replica."""
    before = len(bench.replicas[replica].served)
    bench.arrive(f"turn-{time.monotonic_ns()}", deadline_ms=30).wait()
    return len(bench.replicas[replica].served) > before


def test_answers_are_handed_on_in_order_and_the_request_ends_once(tmp_path: Path) -> None:
    with opened(tmp_path, two_pieces) as bench:
        sender = bench.arrive(seed=3)
        places = [values["PIECE"][0, :2].tolist() for values in sender.values()]
        [request] = bench.replicas["speak-1"].served
    assert places == [[0, 0], [0, 1], [1, 0]]
    assert sender.finals == 1
    assert (request.id, request.model_name) == ("t", "speak")
    assert request.parameters["seed"].int64_param == 3


def test_a_stage_that_answers_once_is_answered_once_and_with_the_final_flag(tmp_path: Path) -> None:
    def once(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 3, final=True)

    with opened(tmp_path, once) as bench:
        sender = bench.arrive()
        assert len(sender.values()) == 1
    assert (sender.finals, len(sender.responses)) == (1, 1)


def test_spans_of_another_host_are_moved_to_our_clock_and_what_was_given_is_not(
    tmp_path: Path,
) -> None:
    given = '{"stage":"encode","turn":"t","what":"queue","start_ns":5,"end_ns":6}'

    def telling(request: Any, context: Any) -> Iterator[Message]:
        there_ns = time.monotonic_ns() + 7_000_000_000
        told = json.dumps({"stage": "speak", "start_ns": there_ns, "end_ns": there_ns + 1000})
        place = np.array([[0, 0, 3]], np.int32)
        yield message(request, final=True, PIECE=place, EVENTS=texts(given, told))

    with opened(tmp_path, telling) as bench:
        before = time.monotonic_ns()
        bench.arrive("first").values()
        bench.until(lambda: len(bench.replicas["speak-1"].served) == 1)
        time.sleep(0.1)
        [values] = bench.arrive(inputs={"EVENTS": fakes.text(given)}).values()
        after = time.monotonic_ns()
    kept, moved, remote = map(json.loads, values["EVENTS"].flat)
    assert kept == json.loads(given)
    assert before - 50_000_000 < moved["start_ns"] < after + 50_000_000
    assert moved["end_ns"] - moved["start_ns"] == 1000
    assert (remote["what"], remote["stage"], remote["replica"]) == ("remote", "speak", "speak-1")
    assert before < remote["start_ns"] < remote["end_ns"] < after


def test_pieces_of_a_turn_are_answered_in_order_though_the_second_is_made_first(
    tmp_path: Path,
) -> None:
    second_made = threading.Event()

    def upside_down(request: Any, context: Any) -> Iterator[Message]:
        piece = int(np.frombuffer(request.raw_input_contents[0], np.int32)[0])
        if piece == 0:
            second_made.wait(5.0)
        yield chunk(request, piece, 0, LAST_CHUNK | (LAST_PIECE if piece else 0), final=True)
        second_made.set()

    with opened(tmp_path, upside_down) as bench:
        first, second = bench.arrive(piece=0, flags=0), bench.arrive(piece=1, flags=LAST_PIECE)
        second.wait()
        assert first.ended.is_set()
        bench.until(lambda: bench.turns["speak-1"] == 0)


def test_turns_are_spread_and_all_of_a_turn_stays_together(tmp_path: Path) -> None:
    def once(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 1, final=True)

    with opened(tmp_path, once, once) as bench:
        for piece, flags in enumerate([0, 0, LAST_PIECE]):
            bench.arrive("a", piece, flags).values()
            bench.arrive("b", piece, flags).values()
        served = {name: {r.id for r in one.served} for name, one in bench.replicas.items()}
    assert sorted(map(sorted, served.values())) == [["a"], ["b"]]


def test_a_replica_that_drains_keeps_its_turns_and_gets_no_new_ones(tmp_path: Path) -> None:
    def once(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 1, final=True)

    with opened(tmp_path, once, once) as bench:
        bench.arrive("old", 0, flags=0).values()
        [home] = [name for name, one in bench.replicas.items() if one.served]
        bench.place(draining=(home,))
        time.sleep(0.3)
        for number in range(3):
            bench.arrive(f"new{number}").values()
        assert bench.turns[home] == 1
        bench.arrive("old", 1, flags=LAST_PIECE).values()
        assert {r.id for r in bench.replicas[home].served} == {"old"}
        bench.until(lambda: bench.turns[home] == 0)


def test_a_replica_that_is_added_serves(tmp_path: Path) -> None:
    def once(request: Any, context: Any) -> Iterator[Message]:
        yield chunk(request, 0, 0, 3, final=True)

    with opened(tmp_path, once, once) as bench:
        bench.place(without=("speak-1", "speak-2"))
        time.sleep(0.3)
        assert "no replica of 'speak' answers" in bench.arrive("early").error()
        bench.place(without=("speak-1",))
        time.sleep(0.3)
        assert len(bench.arrive("late").values()) == 1
        assert len(bench.replicas["speak-2"].served) == 1


def test_a_replica_that_hangs_is_lost_with_all_that_is_open_there(tmp_path: Path) -> None:
    with opened(tmp_path, one_chunk_then_silence, two_pieces) as bench:
        stuck = bench.arrive("stuck")
        bench.until(lambda: bool(bench.replicas["speak-1"].served))
        bench.replicas["speak-1"].awake.clear()
        error = stuck.error()
        assert "code=STAGE_FAILED" in error
        assert "replica speak-1 at" in error
        assert "has answered nothing for 0." in error
        assert [len(bench.arrive(f"t{n}").values()) for n in range(3)] == [3, 3, 3]
        bench.replicas["speak-1"].awake.set()
        bench.until(lambda: bench.turns["speak-1"] == 0)
        bench.until(lambda: back_at(bench, "speak-1"))


def test_a_connection_that_breaks_fails_typed_at_once_and_the_replica_comes_back(
    tmp_path: Path,
) -> None:
    broken = threading.Event()

    def breaking(request: Any, context: Any) -> Iterator[Message]:
        if not broken.is_set():
            broken.set()
            context.abort(grpc.StatusCode.UNAVAILABLE, "killed")
        yield chunk(request, 0, 0, 3, final=True)

    with opened(tmp_path, breaking) as bench:
        error = bench.arrive().error()
        assert "code=STAGE_FAILED stage=speak" in error
        assert "the stream broke: killed" in error
        bench.until(lambda: bench.arrive("again").error() == "")


def test_a_cancel_reaches_the_replica_and_answers_the_caller(tmp_path: Path) -> None:
    with opened(tmp_path, one_chunk_then_silence) as bench:
        mine, other = bench.arrive("mine"), bench.arrive("other")
        bench.until(lambda: len(bench.replicas["speak-1"].served) == 2)
        bench.inbox.put(CancelTurn("mine"))
        assert "code=CANCELLED" in mine.error()
        bench.until(lambda: bench.replicas["speak-1"].cancelled == ["mine"])
        assert not other.ended.is_set()
        other.cancelled = True
        assert "code=CANCELLED" in other.error()
        bench.until(lambda: bench.turns["speak-1"] == 0)


def test_a_large_input_goes_by_shared_memory_which_is_free_again_afterwards(
    tmp_path: Path,
) -> None:
    seen: list[tuple[str, int, int]] = []

    def looking(request: Any, context: Any) -> Iterator[Message]:
        told = next(one for one in request.inputs if one.name == "LATENT").parameters
        region = told["shared_memory_region"].string_param
        start, size = (
            told[f"shared_memory_{what}"].int64_param for what in ("offset", "byte_size")
        )
        raw = (Path("/dev/shm") / region).read_bytes()[start : start + size]
        seen.append((region, start, int(np.frombuffer(raw, np.float32).sum())))
        yield chunk(request, 0, 0, 3, final=True)

    small = RemoteSettings(True, probe_ms=20, lost_ms=300, shared_memory_bytes=2**20)
    with opened(tmp_path, looking, settings=small, inputs=(*INPUTS, "LATENT")) as bench:
        bench.until(lambda: bool(bench.regions()))
        time.sleep(0.1)
        for number in range(4):
            latent = np.ones((1, 100_000), np.float32)
            bench.arrive(f"t{number}", inputs={"LATENT": latent}).values()
            time.sleep(0.02)
        [region] = bench.regions()
    assert [(name, total) for name, _, total in seen] == [(region, 100_000)] * 4
    assert {start for _, start, _ in seen} <= {0, 400_000}  # there is room for two
    assert not (Path("/dev/shm") / region).exists()


def test_a_replica_that_says_it_does_not_serve_gets_nothing_new(tmp_path: Path) -> None:
    """It would fail turns sooner than others answer them, and so always have the fewest."""

    def out_of_service(request: Any, context: Any) -> Iterator[Message]:
        yield failure(request, "model 'speak' is not ready")

    with opened(tmp_path, out_of_service, two_pieces) as bench:
        bench.replicas["speak-1"].serves = False
        time.sleep(0.1)
        assert [len(bench.arrive(f"t{n}").values()) for n in range(5)] == [3] * 5
        bench.replicas["speak-1"].serves = True
        bench.until(lambda: "not ready" in bench.arrive("again").error())


def test_a_watch_that_fails_by_a_bug_ends_the_loop_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = RemoteLoop("speak", INPUTS, SETTINGS, Placement(tmp_path / "none.json", "speak"))

    def broken(self: RemoteLoop) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr(RemoteLoop, "_tell", lambda self, turns: None)
    monkeypatch.setattr("python_backends.remote_stage.loop.LOOK_S", 0.01)
    started = threading.Timer(0.05, lambda: monkeypatch.setattr(RemoteLoop, "_look", broken))
    started.start()
    with pytest.raises(LookupError, match="a bug"):
        loop.run(Inbox())


def test_an_error_of_the_stage_itself_is_passed_on_as_it_is(tmp_path: Path) -> None:
    """And the turn is not made known as cancelled there: its caller may come again."""

    def full(request: Any, context: Any) -> Iterator[Message]:
        yield failure(request, "[tristage code=OVERLOADED stage=speak retry_after_ms=70] full")

    with opened(tmp_path, full) as bench:
        error = bench.arrive().error()
        bench.until(lambda: bench.turns["speak-1"] == 0)
        assert bench.replicas["speak-1"].cancelled == []
    assert error == "[tristage code=OVERLOADED stage=speak turn=t retry_after_ms=70] full"


def test_silence_is_given_up_though_the_replica_answers_for_its_clock(tmp_path: Path) -> None:
    impatient = RemoteSettings(controlled=True, probe_ms=20, lost_ms=300, silence_ms=60)
    with opened(tmp_path, one_chunk_then_silence, settings=impatient) as bench:
        assert "no progress for 0.06 s" in bench.arrive().error()
        bench.until(lambda: bench.replicas["speak-1"].cancelled == ["t"])


def test_a_deadline_ends_a_request(tmp_path: Path) -> None:
    with opened(tmp_path, one_chunk_then_silence) as bench:
        assert "not answered within 60 ms" in bench.arrive(deadline_ms=60).error()


def test_more_than_max_open_requests_are_refused(tmp_path: Path) -> None:
    small = RemoteSettings(controlled=True, probe_ms=20, lost_ms=300, max_open=1)
    with opened(tmp_path, one_chunk_then_silence, settings=small) as bench:
        held = bench.arrive("held")
        bench.until(lambda: bool(bench.replicas["speak-1"].served))
        assert "code=OVERLOADED" in bench.arrive("more").error()
        held.cancelled = True
        held.wait()


def test_a_placement_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "placement.json"
    placement = Placement(file, "think")
    assert placement.changed() is None
    file.write_text('{"stages": {"think": [{"name": "a", "address": "h:1"}]}}')
    found = placement.changed()
    assert found is not None
    assert [one.name for one in found] == ["a"]
    assert placement.changed() is None
    for broken in ("{", "[]", '{"stages": {"think": [{"name": "a"}]}}'):
        file.write_text(broken)
        assert placement.changed() is None


def test_without_a_placement_file_a_proxy_says_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ValueError, match="python -m deploy up"):
        Placement.named("think")


def test_an_ending_without_tensors_ends_the_request(tmp_path: Path) -> None:
    def nothing(request: Any, context: Any) -> Iterator[Message]:
        yield end(request)

    with opened(tmp_path, nothing) as bench:
        sender = bench.arrive()
        assert sender.wait() == []
        assert sender.finals == 1
