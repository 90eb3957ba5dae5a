"""What `make bench-apart` measures: each a few servers, some load, and figures by name."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import sub
from pathlib import Path
from statistics import median

import grpc
import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress
from tritonclient.grpc import service_pb2_grpc

from loadtest.apart import faults
from loadtest.apart.stand import MODEL, Stand, plan_of, stand
from loadtest.apart.transfer import ask
from loadtest.ledger import Explanation
from loadtest.ledger.request import Cause
from loadtest.sim.forecast import (
    ENCODER_APART,
    TOGETHER,
    forecast,
    throughput,
    with_second_speak,
)
from python_backends import wire

Figures = dict[str, float]
Floats = NDArray[np.float64]
ONE, THREE = "one", "three"
CROWD = 64
FAULT_PEOPLE = 32
ROUNDS = 3
"""One server and three, in turns: this machine's speed drifts."""


def together_and_apart(runs: Path, progress: Progress) -> Figures:
    """The same load on one server and on three, one device."""
    alone: dict[str, list[float]] = {ONE: [], THREE: []}
    crowd: dict[str, list[float]] = {ONE: [], THREE: []}
    counted: dict[str, list[float]] = {ONE: [], THREE: []}
    said: dict[str, list[object]] = {ONE: [], THREE: []}
    ways: dict[str, list[float]] = {ONE: [], THREE: []}
    within: list[Floats] = []
    failed = 0.0
    for number in range(ROUNDS):
        for plan in (ONE, THREE):
            with stand(plan_of(plan), runs, progress) as bench:
                said[plan].append(_answer(bench))
                single = bench.load(f"{plan}-1-{number}", 1, 8.0, warm_up_s=2.0)
                many = bench.load(f"{plan}-{CROWD}-{number}", CROWD, 20.0)
            alone[plan].append(_median_first_audio_ms(single))
            crowd[plan].append(throughput(many))
            counted[plan].append(many.rulers.turns_per_s)
            failed += failed_turns(single, many)
            within += [unexplained_ms(told) for told in (single, many) if plan == THREE]
            ways[plan].append(single.requests.mean_ms()[Cause.TRANSPORT])
    return {
        "same_answers": float(said[ONE] == said[THREE]),
        "one_server_first_audio_ms_p50": median(alone[ONE]),
        "three_servers_first_audio_ms_p50": median(alone[THREE]),
        "added_first_audio_ms_p50": median(map(sub, alone[THREE], alone[ONE])),
        "one_server_turns_per_s_64": median(crowd[ONE]),
        "three_servers_turns_per_s_64": median(crowd[THREE]),
        "one_server_turns_counted_per_s_64": median(counted[ONE]),
        "three_servers_turns_counted_per_s_64": median(counted[THREE]),
        "three_by_one_throughput_64": median(crowd[THREE]) / median(crowd[ONE]),
        "spans_off_client_latency_ms_p95": float(np.percentile(np.concatenate(within), 95)),
        "one_server_transport_ms": median(ways[ONE]),
        "three_servers_transport_ms": median(ways[THREE]),
        "added_transport_ms": median(ways[THREE]) - median(ways[ONE]),
        "one_and_three_failed_turns": failed,
    }


def scaled(runs: Path, progress: Progress) -> Figures:
    """The encoder gets a device of its own, then speak a second replica with one of its own; each
    beside what the run before foretold."""
    with stand(plan_of("listen-front"), runs, progress) as bench:
        shared = bench.load("foretelling-shared", CROWD, 24.0)
    with stand(plan_of("encoder-apart"), runs, progress, apart=["listen"]) as bench:
        apart = bench.load("foretold-encoder-apart", CROWD, 24.0)
        bench.cluster.add_replica("emu_speak", environment=bench.elsewhere("speak"))
        both = bench.load("foretold-second-speak", CROWD, 24.0)
    first = forecast(shared, ENCODER_APART, TOGETHER)
    second = forecast(apart, with_second_speak(ENCODER_APART), ENCODER_APART)
    return {
        "encoder_apart_turns_per_s": throughput(apart),
        "encoder_apart_turns_by_predicted": throughput(apart) / first.turns_per_s,
        "encoder_apart_ttfa_p95_by_predicted": _ttfa_p95_ms(apart) / first.first_audio_p95_ms,
        "second_speak_turns_per_s": throughput(both),
        "second_speak_turns_by_predicted": throughput(both) / second.turns_per_s,
        "second_speak_ttfa_p95_by_predicted": _ttfa_p95_ms(both) / second.first_audio_p95_ms,
        "scaled_failed_turns": failed_turns(shared, apart, both),
    }


def broken(runs: Path, progress: Progress) -> Figures:
    """The server of think is killed under load, then stopped."""
    found: Figures = {}
    for name, harm in (("killed", faults.killed), ("stopped", faults.stopped)):
        with stand(plan_of("three-ungathered"), runs, progress) as bench:
            _, fault = harm(bench, f"{name}-think", FAULT_PEOPLE, 16.0)
            down = {event.server for event in bench.cluster.events if event.kind == "down"}
        found |= {
            f"{name}_turns_hit": len(fault.hit),
            f"{name}_turns_beyond_think": len(fault.beyond),
            f"{name}_noticed_s": fault.noticed_s,
            f"{name}_untyped_failures": fault.untyped,
            f"{name}_back_s": fault.back_s,
            f"{name}_beyond_think_answered_share": fault.served_on_share,
            f"{name}_encoder_passes_meanwhile": fault.listened_meanwhile,
            f"{name}_other_servers_lost": len(down - {faults.SERVER}),
        }
    return found


def drained(runs: Path, progress: Progress) -> Figures:
    """A replica of think comes and goes while people speak."""
    with stand(plan_of(THREE), runs, progress) as bench:
        with _meanwhile(lambda: _come_and_go(bench)):
            told = bench.load("replica-comes-and-goes", FAULT_PEOPLE, 20.0)
        changes = {event.kind: event for event in bench.cluster.events}
    added, removed = changes.get("added"), changes.get("removed")
    under_load = removed is not None and removed.monotonic_ns < told.run.window[1]
    return {
        "replica_added_and_removed_under_load": float(added is not None and under_load),
        "replica_turns_served": 0.0 if added is None else _served_by(told, added.server),
        "replica_failed_turns": failed_turns(told),
        "replica_answered_turns": float(told.rulers.answered),
    }


def _served_by(told: Explanation, replica: str) -> float:
    spans = ((turn, span) for turn in told.run.turns for span in turn.spans)
    return float(len({turn.turn for turn, one in spans if one.more.get("replica") == replica}))


def failed_turns(*runs: Explanation) -> float:
    """Turns that were not answered, warm-up and the run's end included."""
    turns = (turn for told in runs for turn in told.run.turns)
    return float(sum(not turn.is_ok and turn.outcome != "open" for turn in turns))


def unexplained_ms(told: Explanation) -> Floats:
    """What the spans leave of the client's latency, ms of each turn."""
    column = list(Cause).index(Cause.UNEXPLAINED)
    left: Floats = np.abs(told.requests.table[:, column]) / 1e6
    return left


def _come_and_go(bench: Stand) -> None:
    time.sleep(6.0)
    name = bench.cluster.add_replica("emu_think")
    time.sleep(5.0)
    bench.cluster.remove_replica(name)


@contextmanager
def _meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Do something beside the block; its fault is the block's."""
    faults_found: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as fault:
            faults_found.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if faults_found:
        raise faults_found[0]


def _answer(bench: Stand) -> object:
    """All tensors of one turn, but for its times."""
    sound = {"AUDIO": np.zeros((1, 16), np.float32)}
    request = wire.to_request(MODEL, sound, turn="same", parameters={})
    with grpc.insecure_channel(bench.cluster.grpc_address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        arrays = [wire.to_arrays(response) for response in ask(stub, request)]
    assert any("SPEECH" in one for one in arrays), "the turn had no sound"
    return [
        {name: values.tolist() for name, values in one.items() if name != "EVENTS"}
        for one in arrays
    ]


def _median_first_audio_ms(told: Explanation) -> float:
    found = told.rulers.first_audio.p50
    assert found is not None, f"nobody was answered in {told.run.name}"
    return found


def _ttfa_p95_ms(told: Explanation) -> float:
    found = told.rulers.first_audio.p95
    assert found is not None, f"nobody was answered in {told.run.name}"
    return found
