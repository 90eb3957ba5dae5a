"""What `live` sends, and a live call that is answered without listening to its words."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from client.live import LiveCall, LiveClient
from client.live.events import Floats
from tests.unit.fake_triton import WAIT_S, FakeServer, Message, Script, message, serving, texts

RATE_HZ = 24_000
LOUD = 1000


def flag(request: Any, name: str) -> bool:
    """Of a sequence."""
    return bool(request.parameters[f"sequence_{name}"].bool_param)


def given(request: Any) -> dict[str, bytes]:
    """Its tensors, raw; those of text without their length."""
    raws = zip(request.inputs, request.raw_input_contents, strict=True)
    return {one.name: raw[4:] if one.datatype == "BYTES" else raw for one, raw in raws}


def event(
    request: Any,
    kind: str,
    *,
    final: bool = False,
    speech: Floats | None = None,
    rate_hz: int = RATE_HZ,
    **more: Any,
) -> Message:
    """An event of the call that a request belongs to."""
    call = service_pb2.ModelInferRequest(id=request.id.partition("/")[0])
    sound = {}
    if speech is not None:
        span = {"stage": "speak", "turn": more["turn"], "piece": 0, "what": "compute"}
        sound = {
            "SPEECH": speech[None],
            "SAMPLE_RATE": np.array([[rate_hz]], np.int32),
            "EVENTS": texts(json.dumps({**span, "start_ns": 1, "end_ns": 2, "members": 3})),
        }
        more["ms"] = round(1000 * speech.size / rate_hz)
    return message(
        call, final=final, EVENT=texts(json.dumps({"type": kind, "turn": "", **more})), **sound
    )


def listened(request: Any) -> Iterator[Message]:
    """The answer to a chunk; there is none to the first."""
    if not flag(request, "start"):
        yield message(request, final=True)


def closed(request: Any) -> Iterator[Message]:
    """The end of the call, with its last chunk."""
    if flag(request, "end"):
        yield event(request, "closed", final=True)


def quiet(request: Any, context: Any) -> Iterator[Message]:
    """A call in which nothing is said."""
    yield from listened(request)
    yield from closed(request)


@dataclass
class Answering:
    """Speech is over with the first chunk that is silent; its answer goes on for as many chunks of
    the caller's as it has itself, 0.1 s each."""

    chunks: Sequence[int] = (2,)
    """Of a call's first answer, the second, ...; all others are as long as the last of these."""

    refuse: str = ""
    """The error that the first chunk is answered with, once."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    _calls: "dict[str, _State]" = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.Lock)

    def __call__(self, request: Any, context: Any) -> Iterator[Message]:
        with self._lock:
            refusal, self.refuse = self.refuse, ""
            state = self._calls.setdefault(request.id.partition("/")[0], _State())
        if refusal:
            yield service_pb2.ModelStreamInferResponse(
                error_message=refusal,
                infer_response=service_pb2.ModelInferResponse(id=request.id),
            )
            return
        tensors = given(request)
        if "REPORT" in tensors:
            self.reports.append(json.loads(tensors["REPORT"]))
        pcm = np.frombuffer(tensors.get("PCM", b""), "<i2")
        is_loud = bool(pcm.size) and int(np.abs(pcm.astype(int)).max()) > LOUD
        yield from listened(request)
        yield from self._follow(state, request, is_loud)
        if flag(request, "end"):
            while state.answering:
                yield from self._answer(state, request)
        yield from closed(request)

    def _follow(self, state: "_State", request: Any, is_loud: bool) -> Iterator[Message]:
        if is_loud and not state.speaking:
            state.speaking = True
            if state.answering:
                yield event(request, "paused", turn=state.turn, played_ms=0)
        elif state.speaking and not is_loud:
            if state.answering:
                yield event(request, "interrupted", turn=state.turn, said="Su", played_ms=0)
            state.speaking = False
            state.left = state.length = self.chunks[min(state.turns, len(self.chunks) - 1)]
            state.turns += 1
            state.turn = f"{request.id.partition('/')[0]}.{state.turns}"
            yield event(request, "transcript", turn=state.turn, text="Two burgers.")
        elif state.answering and not is_loud:
            yield from self._answer(state, request)

    def _answer(self, state: "_State", request: Any) -> Iterator[Message]:
        state.left -= 1
        number, is_last = state.length - 1 - state.left, not state.left
        yield event(
            request,
            "audio",
            turn=state.turn,
            text="" if number else "Sure.",
            chunk=number,
            last=is_last,
            speech=np.full(RATE_HZ // 10, 0.25, np.float32),
        )
        if is_last:
            yield event(request, "answered", turn=state.turn, said="Sure.", played_ms=0)


@dataclass
class _State:
    speaking: bool = False
    turns: int = 0
    turn: str = ""
    length: int = 0
    """Chunks of the last answer."""

    left: int = 0
    """Of these."""

    @property
    def answering(self) -> bool:
        return self.left > 0


def chunk_failed(request: Any, reason: str) -> Message:
    return service_pb2.ModelStreamInferResponse(
        error_message=reason, infer_response=service_pb2.ModelInferResponse(id=request.id)
    )


def with_call(
    script: Script, use: Callable[[LiveCall, FakeServer], Awaitable[Any]], **options: Any
) -> list[Any]:
    """Have a call used; the requests that came of it. Nothing of it is left running."""

    async def speak(fake: FakeServer, address: str) -> None:
        async with asyncio.timeout(WAIT_S):
            async with LiveClient(address) as client, client.call(**options) as call:
                await use(call, fake)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with serving(script) as (fake, address):
        asyncio.run(speak(fake, address))
    return fake.requests
