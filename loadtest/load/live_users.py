"""Locust users in live calls: each holds one, in the pace of a microphone, and may interrupt.

Under gevent a call is two greenlets: its user's, which reads, and gRPC's, which takes chunks from
an iterator that sleeps until each is due.
"""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import grpc
from gevent import GreenletExit
from locust import User, task

from client.calls import error_of
from loadtest.load.live_person import CHUNK_S, FIRST_SOUND, Person
from loadtest.load.records import OK, Turn
from loadtest.load.session import RETRY_MS
from loadtest.load.users import KIND, Plan, live_plan_of, report, sleep_until
from python_backends.errors import StageError, StageFailed


class LiveCallUser(User):
    """One person on the line: a call for as long as the load goes on; another one if it breaks."""

    def on_start(self) -> None:
        plan = live_plan_of(self.environment)
        self.number = next(plan.numbers)
        self.due_ns = max(plan.first_ns(self.number), time.monotonic_ns())
        sleep_until(self.due_ns)

    @task
    def call(self) -> None:
        error = _Line(live_plan_of(self.environment), self.environment, self.number).hold()
        pause_ns = (error.retry_after_ms or RETRY_MS) * 1_000_000
        self.due_ns = time.monotonic_ns() + pause_ns

    def wait_time(self) -> float:
        """Until the next call is due, in s."""
        return max(0.0, (self.due_ns - time.monotonic_ns()) / 1e9)


class _Line:
    """One call, from its first chunk until it breaks, or the run ends."""

    def __init__(self, plan: Plan, environment: Any, number: int) -> None:
        self._plan = plan
        self._environment = environment
        self._person = Person(number, plan.spec, plan.session, self._note, self._ended)
        self._stream: Any = None
        self._why: StageError | None = None
        self._over = False

    def hold(self) -> StageError:
        """What the call ended of."""
        self._stream = self._plan.session.caller.dial(self._requests())
        try:
            for message in self._stream:
                self._person.take(message)
            error: StageError = StageFailed("the stream ended", stage="client")
        except grpc.RpcError as fault:
            error = self._why or error_of(fault, "", self._plan.spec.timeout_s)
        except StageError as fault:
            error = fault
        except GreenletExit:
            self._person.leave()
            raise
        finally:
            self._over = True
            self._stream.cancel()
        self._person.fail(error)
        return error

    def _requests(self) -> Iterator[Any]:
        """Runs in gRPC's greenlet: what it fails of is raised in the user's."""
        began_s = time.monotonic()
        for number in count(1):
            due_s = began_s + number * CHUNK_S
            sleep_until(round(due_s * 1e9))
            if self._over:
                return
            try:
                request = self._person.request(due_s)
            except StageError as error:
                self._why = error
                self._stream.cancel()
                return
            yield request

    def _note(self, name: str, ms: float) -> None:
        if name != FIRST_SOUND:  # which is told with its turn
            self._plan.session.note(name, ms)
        self._environment.events.request.fire(
            request_type=KIND, name=name, response_time=ms, response_length=0, exception=None
        )

    def _ended(self, turn: Turn) -> None:
        if turn.outcome != OK:
            report(self._environment, turn)
