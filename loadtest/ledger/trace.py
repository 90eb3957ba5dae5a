"""RUN/trace.json: the run as Chrome trace events, for ui.perfetto.dev or chrome://tracing."""

from collections.abc import Iterator, Sequence
from typing import Any

from loadtest.ledger.device import Idle
from loadtest.ledger.explanation import Explanation
from loadtest.ledger.request import account
from loadtest.ledger.run import Turn

TURNS = 48
DEVICES_PID, TURNS_PID, HOST_PID = 1, 2, 3
HOST_SPANS = 20_000
"""Host spans in the trace at most: Perfetto gets slow, and the first minutes are alike."""


def trace(told: Explanation) -> dict[str, Any]:
    """Tracks: each device with why it is idle, a sample of turns by cause, the loops' host work."""
    events = [*_devices(told), *_turns(told), *_host(told)]
    note = f"{told.run.name}; {told.run.device_words}; time zero is the start of the run"
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"about": note}}


def sample(turns: Sequence[Turn], count: int = TURNS) -> list[Turn]:
    """Turns evenly spread from the fastest to the slowest, in the order they were sent."""
    ordered = sorted(turns, key=lambda turn: turn.end_ns - turn.intended_ns)
    last = len(ordered) - 1
    picks = {round(i * last / max(1, count - 1)) for i in range(min(count, len(ordered)))}
    return sorted((ordered[i] for i in picks), key=lambda turn: turn.intended_ns)


def _devices(told: Explanation) -> Iterator[dict[str, Any]]:
    yield _process(DEVICES_PID, f"{told.run.device_words}s")
    for number, (device, passes) in enumerate(told.lanes.by_device.items()):
        yield _thread(DEVICES_PID, 2 * number, device)
        yield _thread(DEVICES_PID, 2 * number + 1, f"{device}: idle because")
        for one in passes:
            waited_ms = (one.start_ns - one.submitted_ns) / 1e6
            about = {"members": one.members, "waited_for_device_ms": waited_ms}
            yield _slice(told, one.stage, DEVICES_PID, 2 * number, one.start_ns, one.end_ns, about)
        idle = next(book.idle_parts for book in told.devices if book.device == device)
        for cause in Idle:
            for start, end in idle[cause]:
                yield _slice(told, cause.value, DEVICES_PID, 2 * number + 1, start, end, {})


def _turns(told: Explanation) -> Iterator[dict[str, Any]]:
    yield _process(TURNS_PID, "turns, by cause")
    for number, turn in enumerate(sample(told.run.answered)):
        yield _thread(TURNS_PID, number, f"{turn.user}: {turn.turn}")
        for cause, intervals in account(turn, told.lanes).parts.items():
            for start, end in intervals:
                yield _slice(told, cause.value, TURNS_PID, number, start, end, {"turn": turn.turn})
        for chunk, at_ns in enumerate(turn.chunks_ns):
            yield {
                "name": f"chunk {chunk}",
                "ph": "i",
                "s": "t",
                "pid": TURNS_PID,
                "tid": number,
                "ts": _us(told, at_ns),
            }


def _host(told: Explanation) -> Iterator[dict[str, Any]]:
    yield _process(HOST_PID, "host work of the loops")
    stages = {stage: number for number, stage in enumerate({s.stage for s in told.run.host})}
    for stage, number in stages.items():
        yield _thread(HOST_PID, number, stage)
    for span in told.run.host[:HOST_SPANS]:
        times = span.start_ns, span.end_ns
        yield _slice(told, span.what, HOST_PID, stages[span.stage], *times, dict(span.more))


def _slice(
    told: Explanation, name: str, pid: int, tid: int, start: int, end: int, about: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": _us(told, start), "dur": (end - start) / 1000}
    return {"name": name, "ph": "X", "pid": pid, "tid": tid, **times, "args": about}


def _us(told: Explanation, at_ns: int) -> float:
    return (at_ns - int(told.run.facts["started_ns"])) / 1000


def _process(pid: int, name: str) -> dict[str, Any]:
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def _thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
