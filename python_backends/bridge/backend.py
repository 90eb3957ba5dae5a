"""The Triton model class of every stage: `execute()` only enqueues, a loop thread answers."""

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from python_backends.bridge import events
from python_backends.bridge.byte_figures import ByteFigures
from python_backends.bridge.config import ModelConfig
from python_backends.bridge.dead import DeadTurns
from python_backends.bridge.figures import Figures
from python_backends.bridge.inbox import Arrived, CancelTurn, Closed, Inbox
from python_backends.bridge.log import log_fault
from python_backends.bridge.metered import MeteredRequest
from python_backends.bridge.meters import Tally
from python_backends.bridge.outbox import Outbox
from python_backends.bridge.publisher import Publisher
from python_backends.bridge.request import Request
from python_backends.bridge.request_bytes import RequestBytes
from python_backends.errors import Cancelled, InvalidInput, StageError, StageFailed
from python_backends.scheduling.bytes import Usage
from python_backends.siblings import started_s

SWITCH_INTERVAL_S = 0.0001
"""How long a thread that wants to launch the next step may have to wait for one that is using the
tokens of the last; Python's own 5 ms are as long as a step."""


MAX_ORDER_CHARS = 65_536
"""Of CONTROL: room for 32 of the longest turn ids, every character of them escaped twice."""


class Loop(Protocol):
    """What a stage does with its inbox."""

    def run(self, inbox: Inbox) -> None:
        """Serve events until Closed. Runs on the stage's own thread."""


class StageBackend:
    """Base of the stages' TritonPythonModel; a stage supplies `make_loop`.

    A request with the CONTROL input is answered here: {"cancel": turn id}; {"probe": true}, which
    fails if the stage is out of service; {"clock": true}, a probe that is answered with EVENTS.
    """

    remembers_cancels = True
    """Refuse what still arrives of a cancelled turn."""

    def make_loop(self, config: ModelConfig) -> Loop:
        """The stage itself; called when the model loads, and again after a bug has ended a loop.

        It may tell `self.meters` what goes to /metrics, and set `self.usage` to what tells how much
        of its budget the loop has taken, by part; that is called on another thread.
        """
        raise NotImplementedError(type(self).__name__)

    def obey(self, order: Any) -> Mapping[str, NDArray[Any]] | None:
        """Do what CONTROL says, where it is an order of this stage's own, and give the tensors to
        answer with; None if it is none. May raise a StageError. Called on the server's thread."""
        return None

    def screen(self, request: Request) -> None:
        """Refuse what the loop need not see, by raising a StageError. Called on the server's
        thread, right before the loop is told that the request has arrived."""

    def open_turns(self) -> set[str]:
        """The ids of all turns that have arrived and are not over. For any thread."""
        with self._lock:
            return {request.turn for request in self._open}

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the stage and start its thread."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._config = ModelConfig.from_args(args)
        self._inbox = Inbox()
        self._dead = DeadTurns()
        declared = self._config.declared
        self._open: set[Request] = set()
        self._requests = RequestBytes(declared)
        self.meters = Tally()
        self._figures = Figures(self._config.stage, self._config.told_version)
        self._bytes = ByteFigures(self._figures, declared)
        self._lock = threading.Lock()
        self._broken = self._closing = False
        self._told_open = -1
        self._told_dead = 0
        self.usage: Callable[[], Mapping[str, Usage]] = dict
        self._loop = self.make_loop(self._config)
        self._figures.tell("server_started", (), started_s(os.getppid()))
        self._tell_open()
        self._outbox = Outbox(self._config.name)
        self._publisher = Publisher(
            self._config.name, self.meters, self._figures, also=self._tell_open
        )
        self._thread = threading.Thread(target=self._serve, name=self._config.name)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        """Enqueue; nothing is answered here but control requests and refusals."""
        for native in requests:
            request = MeteredRequest(
                native,
                self._config.stage,
                self._ended,
                self._outbox.post,
                self.meters,
                self._requests.most_input,
            )
            request.version = self._config.told_version
            try:
                self._accept(request)
            except StageError as error:
                request.do_not_post()
                request.fail(error)
            except Exception as fault:
                self._log_fault("accepting a request failed", fault)
                request.fail(StageFailed("the stage failed while accepting the request"))

    def finalize(self) -> None:
        """Called when no request is open any more."""
        with self._lock:
            self._closing = True
            self._inbox.put(Closed())
        self._thread.join()
        self._outbox.close()
        self._publisher.close()
        self._figures.close()

    def _accept(self, request: MeteredRequest) -> None:
        if request.is_control:
            request.do_not_post()
            self._control(request)
            return
        request.parse_options()
        with self._lock:
            if self.remembers_cancels and request.turn in self._dead:
                raise Cancelled("the turn was cancelled before this stage began it")
            self._refuse_if_broken()
            self._requests.take(request)
            self._open.add(request)
            self._tell_whether_open()
            self.screen(request)
            self._inbox.put(Arrived(request))

    def _control(self, request: Request) -> None:
        try:
            order = json.loads(request.text("CONTROL", most=MAX_ORDER_CHARS))
        except (ValueError, RecursionError):
            order = None
        match order:
            case {"cancel": str(turn)} if turn:
                with self._lock:
                    self._dead.add(turn)
                    self._inbox.put(CancelTurn(turn))
            case {"probe": True}:
                self._refuse_if_broken()
            case {"clock": True}:
                self._refuse_if_broken()
                request.finish({"EVENTS": events.clock(self._config.stage)})
            case _ if (answer := self.obey(order)) is not None:
                request.finish(answer)
            case _:
                raise InvalidInput(
                    'CONTROL accepts {"cancel": turn id}, {"probe": true} and {"clock": true}'
                )
        request.acknowledge()

    def _refuse_if_broken(self) -> None:
        if self._broken:
            raise StageFailed("the stage could not be restarted after a failure")

    def _ended(self, request: Request) -> None:
        with self._lock:
            self._open.discard(request)
            self._requests.give_back(request)
            self._tell_whether_open()

    def _tell_open(self) -> None:
        """Every now and then, as other figures are told."""
        with self._lock:
            self._tell_how_many()
            dead, requests = len(self._dead), self._requests.usage()
        self._bytes.tell({"requests": requests, **self.usage()})
        if dead != self._told_dead:
            self._told_dead = dead
            self._figures.tell("dead_turns", (), dead)

    def _tell_whether_open(self) -> None:
        """At once whether anything is open at all: who looks for a leak, or waits until a server
        is idle, must not read what was so before."""
        if not self._open or self._told_open == 0:
            self._tell_how_many()

    def _tell_how_many(self) -> None:
        if self._told_open != len(self._open):
            self._told_open = len(self._open)
            self._figures.tell("open_requests", (), self._told_open)

    def _serve(self) -> None:
        """Run the loop; a bug ends every open request with an error, and a fresh loop goes on."""
        while True:
            try:
                self._loop.run(self._inbox)
                return
            except Exception as fault:
                self._log_fault("the loop failed", fault)
            self._renew_inbox()
            try:
                self._loop = self.make_loop(self._config)
            except Exception as fault:
                self._log_fault("the loop could not be restarted", fault, quote=True)
                self._refuse_for_ever()
                return

    def _renew_inbox(self) -> None:
        """Fail whatever is open; nothing that was meant for the old loop reaches the next one."""
        with self._lock:
            self._inbox = Inbox()
            if self._closing:
                self._inbox.put(Closed())
        self._fail_open("the stage failed while serving; it has been restarted")

    def _refuse_for_ever(self) -> None:
        with self._lock:
            self._broken = True
        self._fail_open("the stage could not be restarted after a failure")

    def _fail_open(self, message: str) -> None:
        with self._lock:
            doomed = list(self._open)
        for request in doomed:
            request.fail(StageFailed(message))

    def _log_fault(self, what: str, fault: Exception, *, quote: bool = False) -> None:
        log_fault(f"{self._config.name}: {what}", fault, quote=quote, stage=self._config.name)
