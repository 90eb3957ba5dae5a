"""Large tensors to a stage on another server of this host: sent, or by shared memory."""

import time
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
from rich.progress import Progress
from tritonclient.grpc import service_pb2_grpc

from deploy.plan import Plan
from loadtest.apart.stand import plan_of, stand
from python_backends import wire

STAGE, PROFILE = "emu_vocoder", "profile-diffusion"
FLOATS = {"hidden": 1500 * 384, "noise": 40 * 1202, "latent": 40 * 64}
"""Float32 values of HIDDEN for a 30 s window, and of NOISE and LATENT for a chunk of speech."""

ROUNDS = 60
TIMEOUT_S = 30.0


def transferred(runs: Path, progress: Progress) -> dict[str, float]:
    """Medians in ms of a request that takes so much; the stage itself computes 2.5 ms of them.

    Ways take turns request by request, on two deployments at once.
    """
    found: dict[str, float] = {}
    sent, shared = (_plan(bytes_shared) for bytes_shared in (0, 64 * 2**20))
    with (
        stand(sent, runs, progress, profile=PROFILE) as sending,
        stand(shared, runs, progress, profile=PROFILE) as sharing,
    ):
        ways = {"sent": sending.cluster.grpc_address, "shared": sharing.cluster.grpc_address}
        for name, floats in FLOATS.items():
            took = _took_ms(ways, floats)
            found |= {f"{name}_{way}_ms": ms for way, ms in took.items()}
            found[f"shared_by_sent_{name}"] = took["shared"] / took["sent"]
    return found


def _plan(shared_bytes: int) -> Plan:
    """The proxy has so much shared memory, and uses it whatever the size of a tensor."""
    remote = {"shared_memory_bytes": str(shared_bytes), "shared_memory_min_bytes": "1"}
    return plan_of("transfer").model_copy(update={"remote": remote})


def _took_ms(ways: dict[str, str], floats: int) -> dict[str, float]:
    request = wire.to_request(
        STAGE, {"F0": np.zeros((1, floats), np.float32)}, turn="", parameters={}
    )
    took: dict[str, list[float]] = {way: [] for way in ways}
    channels = {
        way: grpc.insecure_channel(address, options=wire.CHANNEL_OPTIONS)
        for way, address in ways.items()
    }
    stubs = {
        way: service_pb2_grpc.GRPCInferenceServiceStub(channel) for way, channel in channels.items()
    }
    for _ in range(ROUNDS):
        for way, stub in stubs.items():
            began = time.perf_counter()
            ask(stub, request)
            took[way].append((time.perf_counter() - began) * 1e3)
    for channel in channels.values():
        channel.close()
    return {way: median(times) for way, times in took.items()}


def ask(stub: Any, request: Any) -> list[Any]:
    """The responses to a request; RuntimeError with what the server said instead."""
    messages = list(stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S))
    for message in messages:
        if message.error_message:
            raise RuntimeError(message.error_message)
    return [message.infer_response for message in messages]
