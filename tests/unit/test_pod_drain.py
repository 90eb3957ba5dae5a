"""A server that drains: what it does not tell at once is asked again, and open turns are waited
for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from deploy import launcher
from deploy.cluster.drain import Drain
from deploy.launcher import Server
from deploy.pod import command
from deploy.processes import LOCALHOST
from deploy.repositories import Model, read_models
from deploy.settings import REPOSITORIES, Ports, Settings
from tests.unit.fake_triton import Message, end, failure, serving

IDLE = 'tristage_open_requests{stage="turn"} 0\n'
OPEN = 'tristage_open_requests{stage="turn"} 3\n'
LOST, TORN = "lost", "torn"
"""A /metrics that fails, and one that ends in the middle."""


class Draining(Server):
    """A server whose process is somebody else's affair."""

    ended = False

    @property
    def alive(self) -> bool:
        return not self.ended


class Story:
    """What each look at /metrics is answered with, the last for ever; and the doors, each of which
    fails as often as it is told to."""

    def __init__(self, *looks: str, failures: dict[str, int] | None = None) -> None:
        self.looks = list(looks)
        self.failures = failures or {}
        self.looked = 0
        self.told: list[str] = []
        """Doors that have taken the order."""

    def look(self) -> str:
        self.looked += 1
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def answer(self, request: Any, context: object) -> Iterator[Message]:
        assert b'{"drain": true}' in request.raw_input_contents[0]
        door = request.model_name
        if self.failures.get(door, 0) > 0:
            self.failures[door] -= 1
            yield failure(request, "the model is being loaded")
            return
        self.told.append(door)
        yield end(request)


@contextmanager
def metrics(look: Callable[[], str]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = look()
            self.send_response(500 if text == LOST else 200)
            self.send_header("Content-Length", "1000" if text == TORN else str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((LOCALHOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@cache
def known() -> dict[str, Model]:
    return read_models(REPOSITORIES, {})


@contextmanager
def draining(story: Story, *doors: str) -> Iterator[Draining]:
    models = known()
    with serving(story.answer) as (_, address), metrics(story.look) as port:
        ports = Ports(http=1, grpc=int(address.rpartition(":")[2]), metrics=port)
        server = Draining(Settings(ports=ports, admin_key=""))
        server.take_up(*(models[door] for door in doors))
        yield server


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "DRAIN_POLL_S", 0.01)
    monkeypatch.setattr(command, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(command, "QUIET_S", 0.05)


@pytest.mark.parametrize("trouble", [LOST, TORN])
def test_a_look_that_fails_is_looked_again(trouble: str) -> None:
    story = Story(OPEN, trouble, OPEN, trouble, IDLE)
    with draining(story, "turn") as server:
        assert server.drain(5.0)
    assert story.looks == [IDLE]
    assert story.told == ["turn"]


def test_a_door_that_is_away_is_asked_again_and_others_are_told_meanwhile() -> None:
    story = Story(IDLE, failures={"live": 3})
    with draining(story, "live", "turn") as server:
        assert server.drain(5.0)
    assert story.told == ["turn", "live"]


def test_a_door_that_never_answers_holds_the_drain_up_to_its_end_only() -> None:
    with draining(Story(IDLE, failures={"live": 10_000}), "live", "turn") as server:
        assert not server.drain(0.2)


def test_turns_that_do_not_end_are_left_at_the_deadline() -> None:
    with draining(Story(OPEN), "turn") as server:
        assert not server.drain(0.2)


@pytest.mark.parametrize("trouble", [LOST, TORN])
@pytest.mark.parametrize("doors", [[], ["turn"]])
def test_a_pod_drains_though_some_looks_fail(trouble: str, doors: list[str]) -> None:
    story = Story(OPEN, trouble, OPEN, trouble, IDLE)
    with draining(story, *doors) as server:
        assert command.drain(server, settle_s=0.0, timeout_s=5.0)
    assert story.looks == [IDLE]


def test_a_pod_whose_figures_cannot_be_read_waits_as_long_as_it_may() -> None:
    with draining(Story(LOST)) as server:
        assert not command.drain(server, settle_s=0.0, timeout_s=0.2)


def test_a_server_that_has_ended_is_waited_for_no_longer() -> None:
    story = Story(OPEN)
    with draining(story, "turn") as server:
        server.ended = True
        assert not command.drain(server, settle_s=0.0, timeout_s=2.0)
    assert (story.looked, story.told) == (0, [])


def test_what_is_not_known_is_not_nothing() -> None:
    drain = Drain(0.0, settle_s=0.0, looks=2)
    assert [drain.is_over(1.0, count) for count in (0, None, 0, 0)] == [False, False, False, True]
