"""A known wait for a locked batch, on the real server: the one cause that no bench injects."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2_grpc

from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.apart.stand import emulating
from loadtest.apart.transfer import ask
from loadtest.device import Emulation, read_passes
from loadtest.emulated.leaves.think import prosody
from loadtest.ledger.intervals import total
from loadtest.ledger.phases import Lanes
from loadtest.ledger.request import Cause, account
from loadtest.ledger.run import Pass, Run, Span, Turn
from python_backends import wire
from python_backends.pieces import LAST_PIECE

pytestmark = [pytest.mark.server, pytest.mark.full]

STAGE = "emu_acoustic"
REPOSITORY = Path(__file__).parents[2] / "loadtest" / "emulated"
LONG_STEPS, SHORT_STEPS = 24, 8
LATER_S = 0.04


def speak(address: str, turn: str, steps: int) -> tuple[int, int, tuple[Span, ...]]:
    """One piece, alone: when it was sent and answered, and its spans."""
    place = np.array([[0, 0, LAST_PIECE]], np.int32)
    inputs = {"PIECE": place, "TEXT": np.array([[b"a"]], np.object_), "PROSODY": prosody(0)}
    request = wire.to_request(STAGE, inputs, turn=turn, parameters={"steps": steps})
    sent_ns = time.monotonic_ns()
    with grpc.insecure_channel(address) as channel:
        answers = ask(service_pb2_grpc.GRPCInferenceServiceStub(channel), request)
    rows = [wire.to_arrays(answer).get("EVENTS") for answer in answers]
    told = [json.loads(row) for events in rows if events is not None for row in events.flat if row]
    return sent_ns, time.monotonic_ns(), tuple(Span.parse(entry) for entry in told)


def test_a_piece_waits_in_the_row_lock_for_as_long_as_others_hold_it() -> None:
    with (
        emulating(profile="profile-diffusion") as file,
        Server(Settings(repositories=[REPOSITORY], models=[STAGE], out=file.parent)) as server,
        ThreadPoolExecutor(1) as threads,
    ):
        speak(server.grpc_address, "first", SHORT_STEPS)
        others = threads.submit(speak, server.grpc_address, "others", LONG_STEPS)
        time.sleep(LATER_S)
        sent_ns, end_ns, spans = speak(server.grpc_address, "ours", SHORT_STEPS)
        others.result()
        device = Path(Emulation.read(file).devices["acoustic"])
        passes = tuple(Pass(**vars(one)) for one in read_passes(device))
    held_until_ns = passes[SHORT_STEPS + LONG_STEPS - 1].end_ns
    turn = Turn("ours", "0", sent_ns, sent_ns, "ok", "", (end_ns,), (1.0,), end_ns, spans)
    rows = account(turn, Lanes(Run(Path(), {"name": "run"}, (turn,), passes, ()))).parts
    injected_ns = held_until_ns - sent_ns
    assert injected_ns > 50_000_000
    assert total(rows[Cause.LOCK]) == pytest.approx(injected_ns, rel=0.1)
