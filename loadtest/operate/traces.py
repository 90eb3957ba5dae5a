"""A collector of OpenTelemetry's has every span of 100 turns, from clients and from the server."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from rich.progress import Progress
from tritonclient.utils import deserialize_bytes_tensor

from client import otlp
from client.trace import TracedTurn, to_spans
from client.traceparent import new_traceparent
from deploy.figures import read_metrics, rows
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.apart.stand import emulating
from loadtest.chaos.caller import DOOR, Caller, Told
from loadtest.engine.figures import Found
from loadtest.operate.collector import Collector, collecting
from loadtest.seed.experiment import EMULATED
from loadtest.seed.figures import Target, at_least, at_most
from python_backends.front_door.traces import ENDPOINT
from python_backends.tracing.door_turn import entries
from python_backends.tracing.spans import unix_offset_ns

TURNS: Final = 100
PEOPLE: Final = 8
WAIT_S: Final = 15.0

TARGETS: Final[dict[str, Target]] = {
    "traces_received_share": at_least(1.0),
    "traces_client_received_share": at_least(1.0),
    "traces_wrong_spans": at_most(0),
    "traces_dropped_spans": at_most(0),
}


def traces(folder: Path, rounds: int, progress: Progress) -> Found:
    """The share of spans that the collector passed on, and how many were not as they should be."""
    task = progress.add_task("traces", total=2, told="from the server")
    folder = folder / "traces"
    with collecting(folder) as collector:
        told, dropped = asyncio.run(_spoken(collector, folder))
        wanted = sum(1 + len(_events(one)) for one in told)
        received = collector.sink.wait_for(wanted, WAIT_S)
    progress.advance(task)
    progress.update(task, told="from a client")
    with collecting(folder) as collector:
        offset_ns = unix_offset_ns()
        sent = [span for one in told for span in to_spans(_traced(one), offset_ns)]
        otlp.export(collector.endpoint, sent)
        again = collector.sink.wait_for(len(sent), WAIT_S)
    progress.advance(task)
    wrong = faults(told, [span for _, span in received])
    figures: dict[str, float | None] = {
        "traces_turns": float(len(told)),
        "traces_spans": float(wanted),
        "traces_received_share": len(_distinct(received)) / wanted,
        "traces_client_received_share": len(_distinct(again)) / len(sent),
        "traces_wrong_spans": float(len(wrong)),
        "traces_dropped_spans": dropped,
    }
    return Found(figures, {"wrong": wrong[:10]})


def faults(told: Sequence[Told], spans: Sequence[Span]) -> list[str]:
    """What is not as it should be: each turn has one trace, whose root holds all others, and every
    entry of its EVENTS is there with its times and what it tells. Pure."""
    by_turn: dict[str, list[Span]] = defaultdict(list)
    roots = {span.trace_id: span for span in spans if span.name == "turn"}
    for span in spans:
        root = roots.get(span.trace_id)
        by_turn[_attributes(root).get("turn", "") if root else ""].append(span)
    found = [f"{len(lost)} spans without a root" for lost in [by_turn.pop("", [])] if lost]
    for one in told:
        found += [f"{one.turn_id}: {fault}" for fault in _of_turn(one, by_turn[one.turn_id])]
    return found


def _of_turn(told: Told, spans: Sequence[Span]) -> list[str]:
    roots = [span for span in spans if span.name == "turn"]
    if len(roots) != 1:
        return [f"{len(roots)} roots"]
    (root,) = roots
    children = [span for span in spans if span is not root]
    found = [
        f"{one.name} has another parent" for one in children if one.parent_span_id != root.span_id
    ]
    found += [
        f"{one.name} is outside of its turn"
        for one in children
        if not root.start_time_unix_nano <= one.start_time_unix_nano <= one.end_time_unix_nano
    ]
    lasted = sorted((span.name, _lasted(span)) for span in children)
    asked = sorted(
        (f"{one.stage} {one.what}", one.end_ns - one.start_ns) for one in entries(_events(told))
    )
    if lasted != asked:
        found.append(f"{len(lasted)} spans, not the {len(asked)} of EVENTS")
    wanted = {(one.stage, one.what) for one in entries(_events(told))}
    said = {(str(a.get("stage")), str(a.get("what"))) for a in map(_attributes, children)}
    return found if said == wanted else [*found, "attributes do not tell the stages"]


async def _spoken(collector: Collector, folder: Path) -> tuple[list[Told], float]:
    """TURNS turns, PEOPLE at once, to a server that tells the collector; and what it dropped."""
    settings = Settings(
        repositories=[EMULATED],
        models=[DOOR],
        environment={ENDPOINT: collector.endpoint},
        out=folder / "out",
        exit_timeout_s=2,
    )
    with emulating():
        async with Server(settings) as server:
            caller, told = Caller(server.grpc_address, keeps_events=True), list[Told]()
            for _ in range(TURNS // PEOPLE + 1):
                count = min(PEOPLE, TURNS - len(told))
                told += await asyncio.gather(*(caller.speak() for _ in range(count)))
            await caller.close()
            wanted = sum(1 + len(_events(one)) for one in told)
            await asyncio.to_thread(collector.sink.wait_for, wanted, WAIT_S)
            dropped = [
                row.value
                for row in rows(read_metrics(server.metrics_address))
                if row.name == "tristage_spans_total" and row.labels["result"] == "dropped"
            ]
    return told, sum(dropped)


def _events(told: Told) -> list[bytes]:
    """Every entry that came with any of its responses, once."""
    found: dict[bytes, None] = {}
    for raw in told.all_events or ():
        found |= dict.fromkeys(bytes(one) for one in deserialize_bytes_tensor(raw) if one)
    return list(found)


def _traced(told: Told) -> TracedTurn:
    """As a client tells of it, whose server does not."""
    alone = [replace(one, more=_unexported(one.more)) for one in entries(_events(told))]
    header = new_traceparent(told.turn_id)
    return TracedTurn(told.turn_id, header, told.sent_ns, told.end_ns, alone)


def _unexported(more: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in more.items() if key != "exported"}


def _distinct(found: Sequence[tuple[str, Span]]) -> set[tuple[bytes, bytes]]:
    return {(span.trace_id, span.span_id) for _, span in found}


def _lasted(span: Span) -> int:
    return int(span.end_time_unix_nano - span.start_time_unix_nano)


def _attributes(span: Span) -> dict[str, Any]:
    return {
        one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes
    }
