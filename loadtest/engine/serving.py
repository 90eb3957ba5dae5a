"""Servers of `think` alone, requests to them, and the steps that they have taken."""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2_grpc

from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.engine import step_trace
from loadtest.engine.bare import ROOT
from loadtest.engine.figures import mean_context, mean_interval_ms
from python_backends import wire
from python_backends.ordering.prompt import prompt_tokens

HEARD = "Hello there."
TIMEOUT_S = 120.0
MEMORY = Path("/dev/shm")
PURE_STEPS = 40
"""Steps of a burst in which all its rows take part, and nothing else does."""

LONGEST_PROMPT = 320
"""Tokens that HEARD may need behind the system text; `think_prompt` refuses more."""

LOOP = {
    "task": "loadtest.engine.endless:load",
    "max_new_tokens": "256",
    "prefill_chunk": str(LONGEST_PROMPT),
    "engines": "1",
    "threads": "1",
}
"""The prompt is one chunk, so that a row joins with every step; one engine, as the bare one is."""

_turns = count()


@dataclass(frozen=True)
class Reply:
    """An answer as its caller got it."""

    text: str
    status: str
    first_token_ms: float
    """From the request's arrival at the stage to its first token."""


@dataclass(frozen=True)
class Endless:
    """A server whose answers are as long as they are asked for."""

    server: Server
    trace: Path

    def burst(self, rows: int) -> "Burst":
        """So many answers at once, PURE_STEPS of their steps together."""
        tokens = rows + PURE_STEPS
        seen = self.trace.stat().st_size if self.trace.exists() else 0
        began = time.monotonic()
        with calling(self.server) as stub, ThreadPoolExecutor(rows) as callers:
            asked = [callers.submit(ask, stub, HEARD, max_tokens=tokens) for _ in range(rows)]
            ended = {one.result().status for one in asked}
        seconds = time.monotonic() - began
        if ended != {"length"}:
            raise RuntimeError(f"answers ended by {sorted(ended)}, not all by their length")
        return Burst(rows, tokens, seconds, step_trace.read(self.trace, seen))


@dataclass(frozen=True)
class Burst:
    """What became of some answers asked for at once."""

    rows: int
    tokens: int
    """Of each answer."""

    seconds: float
    """From the first request to the last answer's end, prompts included."""

    steps: list[tuple[int, int]]

    @property
    def interval_ms(self) -> float:
        """From step to step while all rows decode, on average."""
        return mean_interval_ms(self.steps, self.rows, PURE_STEPS // 2)

    @property
    def tokens_per_s(self) -> float:
        """As the callers count them, from the first request on."""
        return self.rows * self.tokens / self.seconds


@contextmanager
def endless(slots: int, capacity: int, **loop: str) -> Iterator[Endless]:
    """A server of endless answers; `loop` are more parameters of `think`."""
    pool = {"slots": str(slots), "capacity": str(capacity)}
    think = {**pool, **LOOP, **loop}
    with tempfile.TemporaryDirectory(prefix="tristage-steps-", dir=MEMORY) as folder:
        trace = Path(folder) / "steps"
        settings = Settings(
            models=["think"],
            overrides={"think": think, "think_step": pool},
            environment={step_trace.VARIABLE: str(trace)},
        )
        with Server(settings) as server:
            yield Endless(server, trace)


@contextmanager
def calling(server: Server) -> Iterator[Any]:
    """A stub of the server."""
    with grpc.insecure_channel(server.grpc_address, options=wire.CHANNEL_OPTIONS) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def ask(
    stub: Any,
    heard: str,
    *,
    history: list[dict[str, str]] | None = None,
    session: str = "",
    **options: Any,
) -> Reply:
    """One request to `think`; RuntimeError with what it said instead of an answer."""
    inputs = {"HEARD": heard}
    if history:
        inputs["HISTORY"] = json.dumps(history)
    if session:
        inputs["SESSION_ID"] = session
    tensors = {name: np.array([[text.encode()]], np.object_) for name, text in inputs.items()}
    request = wire.to_request("think", tensors, turn=f"bench-{next(_turns)}", parameters=options)
    pieces = []
    for message in stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S):
        if message.error_message:
            raise RuntimeError(message.error_message)
        if outputs := wire.to_arrays(message.infer_response):
            pieces.append(outputs)
        if wire.is_final(message.infer_response):
            break
    return _reply(pieces)


def _reply(pieces: Sequence[Mapping[str, Any]]) -> Reply:
    spans = [json.loads(span) for one in pieces for span in one["EVENTS"].reshape(-1)]
    first = next(span for span in spans if span["what"] == "first_token")
    return Reply(
        text=" ".join(one["TEXT"][0, 0].decode() for one in pieces),
        status=pieces[-1]["STATUS"][0, 0].decode(),
        first_token_ms=(first["end_ns"] - first["start_ns"]) / 1e6,
    )


def burst_context(rows: int) -> int:
    """Tokens that a row of a burst holds while all of them decode, on average."""
    return mean_context(len(think_prompt()), rows, PURE_STEPS)


def think_prompt() -> list[int]:
    """What `think` reads when HEARD is asked without a history."""
    path = ROOT / "model_repository" / "think" / "1" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    return prompt_tokens(
        [], HEARD, lambda text: list(tokenizer.encode(text).ids), limit=LONGEST_PROMPT
    )
