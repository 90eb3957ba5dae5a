"""The flow decoder behind locked batches.

Pieces of one key start together and end together; one compute thread runs the batch, so that the
loop sees arrivals and cancels meanwhile. Each piece leaves as chunks, in the order of its turn.
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from python_backends.bridge import Arrived, CancelTurn, Closed, Inbox, Meters, Request, Wake
from python_backends.bridge.inbox import Event
from python_backends.diffusion_lock.chunks import VocoderInput
from python_backends.diffusion_lock.flow import Call, FlowDecoder, Outcome
from python_backends.diffusion_lock.piece import Piece
from python_backends.diffusion_lock.score import Key, to_score
from python_backends.diffusion_lock.settings import AcousticSettings
from python_backends.diffusion_lock.source import Voice
from python_backends.diffusion_lock.turns import Turns
from python_backends.errors import Cancelled, Overloaded, StageError, StageFailed
from python_backends.scheduling.locked import LockedBatch

FIRST_GUESS_S = 0.3
"""A batch's duration before one was measured."""


@dataclass(frozen=True)
class _Batch:
    key: Key
    pieces: tuple[Piece, ...]
    start_s: float


@dataclass(frozen=True)
class _Decoded:
    batch: _Batch
    done: "Future[list[Outcome]]"


class AcousticLoop:
    """Serves requests with PROSODY. `call` is `bridge.call`; `clock` counts seconds."""

    def __init__(
        self,
        settings: AcousticSettings,
        voice: Voice,
        call: Call,
        clock: Callable[[], float] = time.monotonic,
        meters: Meters | None = None,
    ) -> None:
        self._settings = settings
        self._meters = meters or Meters()
        self._voice = voice
        self._clock = clock
        self._flow = FlowDecoder(call, settings.condition_model, settings.step_model)
        self._lock: LockedBatch[Key, Piece] = LockedBatch(
            max_batch=settings.max_batch, patience_s=settings.patience_ms / 1000
        )
        self._turns = Turns(limit=settings.max_waiting, hold_s=settings.hold_s)
        self._open: set[Piece] = set()
        self._made: list[Piece] = []
        self._batch: _Batch | None = None
        self._batch_s = FIRST_GUESS_S

    def run(self, inbox: Inbox) -> None:
        """Serve events until Closed; its thread ends with it."""
        self._inbox = inbox
        with ThreadPoolExecutor(1, "flow") as self._compute:
            self._meter_slots()
            while all(map(self._serve, inbox.take(self._patience_s()))):
                self._start()
                self._emit()
                self._give_up_stuck()
                self._meter_slots()

    def check_integrity(self) -> None:
        """Open pieces are exactly those that wait, run, or are held back."""
        self._lock.check_integrity()
        self._turns.check_integrity()
        assert all(piece.request.is_open for piece in self._open)
        assert self._lock.waiting + len(self._lock.running) <= len(self._open)

    def _serve(self, event: Event) -> bool:
        """Handle one event; False ends the loop."""
        match event:
            case Arrived(request):
                self._arrived(request)
            case CancelTurn(turn):
                self._turns.abandon(turn)
                self._fail(
                    [piece for piece in self._open if piece.turn == turn],
                    Cancelled("the turn was cancelled while it was being spoken"),
                )
            case Wake(_Decoded(batch, done)) if batch is self._batch:
                self._decoded(batch, done.result())
            case Closed():
                return False
        return True

    def _arrived(self, request: Request) -> None:
        try:
            piece = Piece.of(request)
            self._turns.enter(piece)
        except StageError as error:
            request.fail(error)
            return
        self._open.add(piece)
        try:
            self._queue(piece)
        except StageError as error:
            self._lose(piece, error)

    def _queue(self, piece: Piece) -> None:
        if len(self._open) > self._settings.max_waiting:
            raise Overloaded(
                f"{self._settings.max_waiting} pieces are open, and no more are taken",
                retry_after_ms=self._retry_after_ms(),
            )
        if not piece.has_sound:
            self._made.append(piece)
            return
        limit = self._settings.max_frames
        piece.score = to_score(piece.request.required("PROSODY"), limit)
        options = piece.request.options
        key = Key(
            piece.score.bucket(limit),
            options.steps or self._settings.steps,
            options.solver or self._settings.solver,
        )
        piece.queued_s = self._clock()
        self._lock.add(piece, key, piece.queued_s, later_piece=piece.number > 0)

    def _retry_after_ms(self) -> int:
        """When the batches now ahead will have left."""
        batches = math.ceil(self._lock.waiting / self._settings.max_batch) + 1
        return math.ceil(1000 * batches * self._batch_s)

    def _start(self) -> None:
        """Lock the next batch, if none runs. Pieces whose callers are gone leave first."""
        if self._batch is not None or not self._lock.waiting:
            return
        for piece in [piece for piece in self._open if piece.request.cancelled]:
            self._lose(piece, _gone())
        now = self._clock()
        locked = self._lock.start(now)
        if locked is None:
            return
        batch = self._batch = _Batch(*locked, now)
        for piece in batch.pieces:
            about = {"members": len(batch.pieces), "frames": batch.key.frames}
            piece.note("queue", piece.request.arrived_ns / 1e9, now, **about)
        future = self._compute.submit(self._flow.decode, batch.key, batch.pieces)
        future.add_done_callback(lambda done: self._inbox.put(Wake(_Decoded(batch, done))))
        for piece in batch.pieces:
            self._meters.observe("lock_seconds", now - piece.queued_s)
            self._meters.observe("queue_seconds", now - piece.request.arrived_ns / 1e9)

    def _decoded(self, batch: _Batch, outcomes: list[Outcome]) -> None:
        now = self._clock()
        self._batch, self._batch_s = None, now - batch.start_s
        self._meters.step(self._batch_s)
        self._lock.finish()
        for piece, outcome in zip(batch.pieces, outcomes, strict=True):
            if piece.error is not None:
                self._close(piece, piece.error)
            elif isinstance(outcome, StageError):
                self._lose(piece, outcome)
            else:
                about = {"members": len(batch.pieces), "steps": batch.key.steps}
                piece.note("compute", batch.start_s, now, solver=batch.key.solver, **about)
                piece.frames = outcome
                self._made.append(piece)

    def _emit(self) -> None:
        """Send what is made, or hold it back for earlier pieces of its turn."""
        made, self._made = self._made, []
        for piece in made:
            if piece in self._open and piece.request.cancelled:
                self._lose(piece, _gone())
            if piece in self._open:
                self._turns.submit(piece, self._clock(), partial(self._send, piece))

    def _meter_slots(self) -> None:
        """Pieces in the batch, pieces that wait for one, and room that the batch has left."""
        running = len(self._lock.running)
        free = self._settings.max_batch - running
        self._meters.slots(running=running, waiting=self._lock.waiting, free=free)

    def _send(self, piece: Piece) -> None:
        seed = piece.request.options.seed
        source = (
            VocoderInput.silence()
            if piece.frames is None
            else VocoderInput.of(piece.frames, self._voice, seed=seed, piece=piece.number)
        )
        for outputs in piece.responses(source):
            piece.request.send(outputs)
        piece.request.finish()
        self._open.discard(piece)

    def _patience_s(self) -> float | None:
        """How long the loop may sleep: until a piece was held back for too long."""
        deadline = self._turns.next_deadline()
        return None if deadline is None else max(0.0, deadline - self._clock())

    def _give_up_stuck(self) -> None:
        for piece in self._turns.stuck(self._clock()):
            self._lose(piece, StageFailed("an earlier piece of the turn has not arrived"))

    def _lose(self, piece: Piece, error: StageError) -> None:
        """A piece fails, and with it all the others of its turn."""
        others: list[Piece] = []
        if not piece.is_alone:
            self._turns.abandon(piece.turn)
            others = [other for other in self._open if _same_turn(other, piece)]
        self._fail([piece], error)
        self._fail(others, Cancelled("another piece of the turn failed"))

    def _fail(self, pieces: Sequence[Piece], error: StageError) -> None:
        """End pieces; those in the running batch end with it."""
        for piece in pieces:
            piece.error = piece.error or error
        self._lock.drop(lambda waiting: waiting.error is not None)
        for piece in pieces:
            if piece not in self._lock.running:
                self._close(piece, error)

    def _close(self, piece: Piece, error: StageError) -> None:
        piece.request.fail(error)
        self._open.discard(piece)


def _same_turn(other: Piece, piece: Piece) -> bool:
    return other is not piece and not other.is_alone and other.turn == piece.turn


def _gone() -> Cancelled:
    return Cancelled("the caller has left")
