"""One person in a live call: what they say, what they hear of it, and how long that took."""

import time
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from client.live.events import LiveEvent
from client.live.playback import Playback
from client.live.reading import CallReader
from client.live.requests import chunk_request, pcm_bytes
from client.live.speaker import Pcm, Speaker
from loadtest.load.records import Turn
from loadtest.load.session import Session
from loadtest.load.spec import RunSpec
from python_backends.errors import DeadlineMissed, StageError, StageFailed

CHUNK_S = 0.1
RATE_HZ = 16_000
CHUNK = round(CHUNK_S * RATE_HZ)
QUIET = 0.01
"""Of full scale: what is below, before and behind a recording, is not speech."""

BARGE_IN_S = 1.0
"""After the first sound of the answer that is interrupted."""

FIRST_SOUND, CHUNK_HEARD, HOLD = "live first sound", "live chunk", "live hold"


class Person:
    """`note` is told how many ms something took: the first sound of an answer, since speech ended;
    a chunk, until it was listened to; and an answer, since it was spoken into, until it was held.
    `ended` is told of every turn that is over, after `session`. A chunk that is refused counts as a
    failed turn of its own."""

    def __init__(
        self,
        number: int,
        spec: RunSpec,
        session: Session,
        note: Callable[[str, float], None],
        ended: Callable[[Turn], None],
    ) -> None:
        self._number = number
        self._spec = spec
        self._session = session
        self._note = note
        self._ended = ended
        self._random = Random(f"{spec.seed}/{number}")
        self._reader = CallReader(session.caller.new_id(), spec.model)
        self._speaker = Speaker(
            [whole_chunks(spoken_part(sound)) for sound in session.caller.spoken(number)],
            chunk_s=CHUNK_S,
            pause_s=spec.think_time_ms / 1e3,
            again=True,
        )
        self._playback = Playback()
        self._chunks = 0
        self._turns: list[Turn] = []
        """Those that are open: one, or two while an answer is spoken into."""

        self._began_ns = 0
        """When they began to speak into an answer."""

    def request(self, due_s: float) -> Any:
        """The next chunk's, of the sound until `due_s`, on time.monotonic(). StageFailed when the
        server does not answer chunks any more."""
        now_ns = time.monotonic_ns()
        silent_s = (now_ns - self._reader.heard_ns) / 1e9
        if self._reader.waits and silent_s > self._spec.timeout_s:
            raise StageFailed(f"nothing was answered for {silent_s:.1f} s", stage="client")
        self._give_up(now_ns)
        pcm = self._say(due_s)
        self._playback.read(round(CHUNK_S * self._playback.rate_hz))
        request = chunk_request(
            self._spec.model,
            self._reader.call_id,
            self._chunks,
            pcm_bytes(pcm),
            report=self._playback.report(),
            parameters=None if self._chunks else self._spec.options,
        )
        self._chunks += 1
        self._reader.sent(request.id, now_ns)
        return request

    def take(self, message: Any) -> None:
        """A ModelStreamInferResponse; raises the StageError that it ends the call with."""
        event = self._reader.take(message, time.monotonic_ns())
        while self._reader.lags_ms:
            self._note(CHUNK_HEARD, self._reader.lags_ms.popleft())
        if self._reader.over:
            raise StageFailed("the call was closed", stage="client")
        if event is not None:
            self._follow(event)

    def fail(self, error: StageError) -> None:
        """The call is over, and with it what is open; if nothing is, that is a failure too."""
        if not self._turns:
            self._begin(time.monotonic_ns())
        for turn in list(self._turns):
            turn.fail(error, late=False)
            self._end(turn)

    def leave(self) -> None:
        """The run is over."""
        for turn in list(self._turns):
            turn.leave_open()
            self._end(turn)

    def _say(self, due_s: float) -> Pcm:
        begun, ended = len(self._speaker.begins_s), len(self._speaker.ends_s)
        pcm = self._speaker.chunk(due_s)
        assert pcm is not None, "recordings never end"
        if len(self._speaker.begins_s) > begun:
            silence_s = int(np.argmax(pcm != 0)) / RATE_HZ
            began_ns = round((self._speaker.begins_s[-1] + silence_s) * 1e9)
            self._began_ns = began_ns if self._turns else 0
        if len(self._speaker.ends_s) > ended:
            self._begin(round(self._speaker.ends_s[-1] * 1e9))
        return pcm

    def _give_up(self, now_ns: int) -> None:
        """Wait no more for answers of which there has been no sound in time."""
        for turn in list(self._turns):
            if not turn.chunks_ns and now_ns - turn.intended_ns > self._spec.timeout_s * 1e9:
                late = f"no sound within {self._spec.timeout_s:g} s"
                turn.fail(DeadlineMissed(late, stage="client"), late=True)
                self._end(turn)
                self._speaker.go_on(now_ns / 1e9)

    def _follow(self, event: LiveEvent) -> None:
        turn = self._turn_of(event)
        if event.type == "failed" and not event.turn:
            turn = self._begin(event.received_ns)
        match event.type:
            case "audio" if turn is not None and event.speech.size:
                self._hear(turn, event)
            case "paused" if self._began_ns:
                self._note(HOLD, (event.received_ns - self._began_ns) / 1e6)
                self._began_ns = 0
            case "answered" if turn is not None:
                turn.succeed()
                self._end(turn)
            case "interrupted" if turn is not None and turn.chunks_ns:
                turn.succeed()
                turn.detail = "interrupted"
                self._end(turn)
            case "failed" | "no_speech" | "interrupted" if turn is not None:
                unheard = StageFailed(f"{event.type} instead of an answer", stage="client")
                turn.fail(event.error or unheard, late=False)
                self._end(turn)
        self._playback.take(event)
        self._speaker.follow(event, event.received_ns / 1e9)

    def _turn_of(self, event: LiveEvent) -> Turn | None:
        """The open turn that an event tells of. The first that is told of what was said last gives
        it its name: that of the server."""
        known = next((turn for turn in self._turns if turn.turn == event.turn), None)
        if known is not None or event.type not in ("transcript", "no_speech", "failed"):
            return known
        newest = self._turns[-1] if event.turn and self._turns else None
        if newest is None or newest.turn.startswith(f"{self._reader.call_id}."):
            return None
        newest.turn = event.turn
        return newest

    def _hear(self, turn: Turn, event: LiveEvent) -> None:
        if not turn.chunks_ns:
            self._note(FIRST_SOUND, (event.received_ns - turn.intended_ns) / 1e6)
            barges_in = self._random.random() < self._spec.barge_in
            self._speaker.barge_in_s = BARGE_IN_S if barges_in else None
        turn.chunks_ns.append(event.received_ns)
        turn.chunk_audio_ms.append(1e3 * event.speech.size / event.sample_rate_hz)

    def _begin(self, intended_ns: int) -> Turn:
        self._turns.append(self._session.begin(self._number, intended_ns))
        return self._turns[-1]

    def _end(self, turn: Turn) -> None:
        self._turns.remove(turn)
        self._session.end(turn)
        self._ended(turn)


def spoken_part(sound: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 [samples] from the first to the last that is not quiet; all of it where none is."""
    loud = np.flatnonzero(np.abs(sound) > QUIET)
    return sound[loud[0] : loud[-1] + 1] if loud.size else sound


def whole_chunks(sound: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """With silence before it, so that its last sample is the last of a chunk: then the chunk leaves
    at the end of speech, and not up to a chunk later."""
    return np.concatenate([np.zeros(-sound.size % CHUNK, np.float32), sound])
