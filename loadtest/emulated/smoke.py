"""`python -m loadtest.emulated.smoke`: does the emulated repository serve, and about how fast?

A functional check: a server is started, and 1 and then 8 people speak some turns each, closed
loop, from threads of this process. For figures there is the load generator.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import grpc
import numpy as np
from tritonclient.grpc import service_pb2_grpc

from client.calls import CHANNEL_OPTIONS
from client.responses import TurnChunk, TurnReader
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.device import DevicePass, Emulation, Profile, create, named, read_passes
from python_backends import wire

REPOSITORY = Path(__file__).parent
MEMORY = Path("/dev/shm")
TURNS = {"emu_turn": "profile", "emu_turn_diffusion": "profile-diffusion"}
"""Ensembles, and the profile each is meant for."""

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Measured:
    """What so many people got of the emulated device. Times are medians."""

    people: int
    turns: int
    turns_per_s: float
    device_busy: float
    first_audio_s: float
    latency_s: float
    chunks: int


@contextmanager
def one_device(
    profile: Profile, folder: Path, *, speed: float = 1.0, pieces: int = 1
) -> Iterator[Emulation]:
    """An emulation whose stages all share one new device, named to processes started inside."""
    device = MEMORY / f"tristage-{os.getpid()}-{uuid4().hex[:8]}.dev"
    create(device)
    emulation = Emulation(
        profile,
        devices=dict.fromkeys(profile.stages, str(device)),
        speed=speed,
        host_gap_ms=profile.monolith.host_gap_ms_total,
        gap_per_member_ms=profile.monolith.gap_per_member_ms,
        spans=str(folder / "spans"),
        pieces=pieces,
    )
    file = folder / "emulation.json"
    emulation.write(file)
    try:
        with named(file):
            yield emulation
    finally:
        device.unlink(missing_ok=True)


def settings(model: str, overrides: Mapping[str, Mapping[str, str]] | None = None) -> Settings:
    """Of a server with one emulated ensemble."""
    return Settings(repositories=[REPOSITORY], models=[model], overrides=overrides)


def speak(address: str, model: str) -> tuple[int, list[TurnChunk]]:
    """One turn: when it was sent, and its chunks. Raises a StageError."""
    turn = uuid4().hex
    sound = np.zeros((1, 16), np.float32)
    request = wire.to_request(model, {"AUDIO": sound}, turn=turn, parameters={})
    reader = TurnReader(turn)
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        sent_ns = time.monotonic_ns()
        answer = stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S)
        found = [reader.take(message, time.monotonic_ns()) for message in answer]
    reader.close()
    return sent_ns, [chunk for chunk in found if chunk is not None]


def measure(address: str, model: str, device: Path, people: int, turns: int) -> Measured:
    """`people` speak `turns` turns each, one after the other."""
    spoken: list[tuple[int, list[TurnChunk]]] = []

    def person() -> None:
        for _ in range(turns):
            spoken.append(speak(address, model))

    threads = [threading.Thread(target=person) for _ in range(people)]
    start_ns = time.monotonic_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end_ns = time.monotonic_ns()
    if len(spoken) != people * turns:
        raise RuntimeError(f"{people * turns - len(spoken)} turns failed; see above")
    firsts = [(chunks[0].received_ns - sent) / 1e9 for sent, chunks in spoken]
    wholes = [(chunks[-1].received_ns - sent) / 1e9 for sent, chunks in spoken]
    return Measured(
        people=people,
        turns=len(spoken),
        turns_per_s=round(len(spoken) / (end_ns - start_ns) * 1e9, 2),
        device_busy=round(busy(read_passes(device), start_ns, end_ns), 3),
        first_audio_s=round(float(np.median(firsts)), 3),
        latency_s=round(float(np.median(wholes)), 3),
        chunks=sum(len(chunks) for _, chunks in spoken),
    )


def busy(passes: Sequence[DevicePass], start_ns: int, end_ns: int) -> float:
    """The share of [start_ns, end_ns] in which one device had a task."""
    within = (min(one.end_ns, end_ns) - max(one.start_ns, start_ns) for one in passes)
    return sum(length for length in within if length > 0) / (end_ns - start_ns)


def main() -> int:
    """Run and print one JSON line for each number of people."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(TURNS), default="emu_turn")
    parser.add_argument("--people", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--turns", type=int, default=4, help="of each person")
    parser.add_argument("--pieces", type=int, default=1)
    chosen = parser.parse_args()
    profile = Profile.named(TURNS[chosen.model])
    with (
        tempfile.TemporaryDirectory() as folder,
        one_device(profile, Path(folder), pieces=chosen.pieces) as emulation,
        Server(settings(chosen.model), progress=print) as server,
    ):
        device = Path(emulation.devices["listen"])
        speak(server.grpc_address, chosen.model)
        for people in chosen.people:
            found = measure(server.grpc_address, chosen.model, device, people, chosen.turns)
            line = {"emulated device": True, "model": chosen.model, **asdict(found)}
            print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
