"""The flow decoder behind its queue.

Pieces share it in locked batches, or step by step (see `sharing`); one compute thread runs them, so
that the loop sees arrivals and cancels meanwhile. Each piece leaves as chunks, in the order of its
turn.
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
from python_backends.diffusion_lock.flow import Outcome
from python_backends.diffusion_lock.graphs import Call, FlowGraphs
from python_backends.diffusion_lock.piece import Piece
from python_backends.diffusion_lock.score import Key, to_score
from python_backends.diffusion_lock.settings import AcousticSettings
from python_backends.diffusion_lock.sharing import MODES, Sharing, Work
from python_backends.diffusion_lock.solver import chosen, stride
from python_backends.diffusion_lock.source import Voices
from python_backends.diffusion_lock.turns import Turns
from python_backends.errors import Cancelled, InvalidInput, Overloaded, StageError
from python_backends.scheduling.bytes import BATCH, BatchBudget
from python_backends.sizes import RowBytes

FIRST_GUESS_S = 0.3
"""A piece's time from its first step to its last, before one was measured."""


@dataclass(frozen=True)
class _Done:
    work: Work[Piece]
    outcomes: "Future[Sequence[Outcome | None]]"


class AcousticLoop:
    """Serves requests with PROSODY. `call` is `bridge.call`; `clock` counts seconds."""

    def __init__(
        self,
        settings: AcousticSettings,
        voices: Voices,
        call: Call,
        clock: Callable[[], float] = time.monotonic,
        meters: Meters | None = None,
    ) -> None:
        self._settings = settings
        self._meters = meters or Meters()
        self._voices = voices
        self._clock = clock
        graphs = FlowGraphs(call, settings.condition_model, settings.step_model)
        self._row_bytes = RowBytes.read(settings.row_bytes)
        self._bytes = BatchBudget(settings.max_batch_bytes)
        self.usage = self._bytes.usage
        self._sharing: Sharing[Piece] = MODES[settings.mode](
            graphs,
            max_batch=settings.max_batch,
            patience_s=settings.patience_ms / 1000,
            most=lambda frames: self._bytes.most(self._row_bytes(frames)),
        )
        self._turns = Turns(limit=settings.max_waiting, hold_s=settings.hold_s)
        self._open: set[Piece] = set()
        self._made: list[Piece] = []
        self._work: Work[Piece] | None = None
        self._work_began_s = self._work_ended_s = 0.0
        self._seated: tuple[Piece, ...] = ()  # of the work before; they go on, if nobody pauses
        self._piece_s = FIRST_GUESS_S

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
        """Open pieces are exactly those that wait, run, or are held back; work alone has bytes."""
        self._sharing.check_integrity()
        assert self._work or not self.usage()[BATCH].used
        self._turns.check_integrity()
        assert all(piece.request.is_open for piece in self._open)
        assert self._sharing.waiting + len(self._sharing.running) <= len(self._open)

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
            case Wake(_Done(work, outcomes)) if work is self._work:
                self._done(work, outcomes.result())
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
        options = piece.request.options
        steps = options.steps or self._settings.steps
        solver = chosen(options.solver, self._settings.solver, steps)
        piece.score = to_score(
            piece.request.required("PROSODY"),
            limit,
            voice=self._voices[options.voice].number,
            stride=stride(solver, steps),
        )
        piece.key = Key(piece.score.bucket(limit), steps, solver)
        needed = self._row_bytes(piece.key.frames)
        if not self._bytes.most(needed):
            raise InvalidInput(
                f"the piece takes {needed} bytes to be computed; the stage has {self._bytes.limit}",
                reason="bytes",
            )
        piece.queued_s = self._clock()
        self._sharing.add(piece, piece.queued_s)

    def _retry_after_ms(self) -> int:
        """When those now ahead will have left."""
        batches = math.ceil(self._sharing.waiting / self._settings.max_batch) + 1
        return math.ceil(1000 * batches * self._piece_s)

    def _start(self) -> None:
        """Start the next work, if none is under way. Pieces whose callers are gone leave first."""
        if self._work is not None:
            return
        if not self._sharing.waiting:
            self._seated = ()
            return
        for piece in list(self._open):
            if (error := piece.request.gone) is not None:
                self._lose(piece, error)
        now = self._clock()
        work = self._sharing.start(now)
        if work is None:
            return
        self._work, self._work_began_s = work, now
        self._bytes.begin(sum(self._row_bytes(_frames(piece)) for piece in work.members))
        self._seat(work.members, now)
        future = self._compute.submit(work.run)
        future.add_done_callback(lambda done: self._inbox.put(Wake(_Done(work, done))))
        for piece in work.joined:
            self._meters.observe("lock_seconds", now - piece.queued_s)
            self._meters.observe("queue_seconds", now - piece.request.arrived_ns / 1e9)

    def _seat(self, members: tuple[Piece, ...], now: float) -> None:
        """Members of the work before that are not in this one pause; the others go on."""
        for piece in self._seated:
            if piece not in members:
                piece.rest(self._work_ended_s)
        for piece in members:
            if piece not in self._seated:
                piece.begin(now, len(members))
        self._seated = ()

    def _done(self, work: Work[Piece], outcomes: Sequence[Outcome | None]) -> None:
        now = self._work_ended_s = self._clock()
        self._work = None
        self._bytes.end()
        self._meters.step(now - self._work_began_s)
        self._sharing.finish()
        for piece, outcome in zip(work.members, outcomes, strict=True):
            piece.company = max(piece.company, len(work.members))
            if piece.error is not None:
                self._close(piece, piece.error)
            elif isinstance(outcome, StageError):
                self._lose(piece, outcome)
            elif outcome is not None:
                piece.rest(now)
                piece.frames, self._piece_s = outcome, piece.computed_s
                self._made.append(piece)
            else:
                self._seated += (piece,)

    def _emit(self) -> None:
        """Send what is made, or hold it back for earlier pieces of its turn."""
        made, self._made = self._made, []
        for piece in made:
            if piece in self._open and (error := piece.request.gone) is not None:
                self._lose(piece, error)
            if piece in self._open:
                self._turns.submit(piece, self._clock(), partial(self._send, piece))

    def _meter_slots(self) -> None:
        """Pieces being computed, pieces that wait for that, and room that is left."""
        running = len(self._sharing.running)
        free = self._settings.max_batch - running
        self._meters.slots(running=running, waiting=self._sharing.waiting, free=free)

    def _send(self, piece: Piece) -> None:
        for outputs in piece.responses(self._source(piece)):
            piece.request.send(outputs)
        piece.request.finish()
        self._open.discard(piece)

    def _source(self, piece: Piece) -> VocoderInput:
        voice = self._voices[piece.request.options.voice]
        if piece.frames is None:
            return VocoderInput.silence(voice)
        return VocoderInput.of(piece.frames, voice, seed=piece.seed, piece=piece.number)

    def _patience_s(self) -> float | None:
        """How long the loop may sleep: until a piece was held back for too long."""
        deadline = self._turns.next_deadline()
        return None if deadline is None else max(0.0, deadline - self._clock())

    def _give_up_stuck(self) -> None:
        for piece in self._turns.stuck(self._clock()):
            self._lose(piece, InvalidInput("an earlier piece of the turn has not come"))

    def _lose(self, piece: Piece, error: StageError) -> None:
        """A piece fails, and with it all the others of its turn."""
        others: list[Piece] = []
        if not piece.is_alone:
            self._turns.abandon(piece.turn)
            others = [other for other in self._open if _same_turn(other, piece)]
        self._fail([piece], error)
        self._fail(others, Cancelled("another piece of the turn failed"))

    def _fail(self, pieces: Sequence[Piece], error: StageError) -> None:
        """End pieces; those in the work under way end with it."""
        for piece in pieces:
            piece.error = piece.error or error
        self._sharing.drop(lambda waiting: waiting.error is not None)
        for piece in pieces:
            if piece not in self._sharing.running:
                self._close(piece, error)

    def _close(self, piece: Piece, error: StageError) -> None:
        piece.request.fail(error)
        self._open.discard(piece)


def _frames(piece: Piece) -> int:
    """Of its bucket."""
    assert piece.key is not None, "a piece without sound was computed"
    return piece.key.frames


def _same_turn(other: Piece, piece: Piece) -> bool:
    return other is not piece and not other.is_alone and other.turn == piece.turn
