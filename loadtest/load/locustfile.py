"""The same users for Locust's own command line and its web page::

    locust -f loadtest/load/locustfile.py SpokenTurnUser --headless -u 20 -t 30s \\
        --host 127.0.0.1:8001 --model turn
    locust -f loadtest/load/locustfile.py LiveCallUser --headless -u 20 -t 60s \\
        --host 127.0.0.1:8001 --live-model live --barge-in 0.2

Latencies are those of answered turns, "first audio" and "turn"; in live calls the first sound of an
answer, of a chunk until it was listened to, and of an answer until it was held; failures are
entries of their own. Both kinds of people speak at once if neither is named.
Runs that are to be explained afterwards are made with `python -m loadtest run`.
"""

import time
from typing import Any

import grpc.experimental.gevent
from locust import events

from loadtest.load.caller import Caller
from loadtest.load.live_users import LiveCallUser
from loadtest.load.session import Session
from loadtest.load.spec import ROOT, RunSpec, recordings
from loadtest.load.users import Plan, SpokenTurnUser, attach

__all__ = ["LiveCallUser", "SpokenTurnUser"]

grpc.experimental.gevent.init_gevent()
REAL_MODEL = "turn"
PEOPLE = {False: SpokenTurnUser, True: LiveCallUser}


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _arguments(parser: Any) -> None:
    parser.add_argument("--model", default=REAL_MODEL, help="the model that answers turns")
    parser.add_argument("--live-model", default="live", help="the model that answers calls")
    parser.add_argument("--barge-in", type=float, default=0.2, help="share of answers interrupted")
    parser.add_argument("--turn-timeout", type=float, default=6.0, help="patience in s")
    parser.add_argument("--think-time", type=float, default=0.0, help="ms between turns")


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _start(environment: Any, **_: Any) -> None:
    for live, people in PEOPLE.items():
        if people in environment.user_classes:
            _attach(environment, live=live)


def _attach(environment: Any, *, live: bool) -> None:
    chosen = environment.parsed_options
    model = chosen.live_model if live else chosen.model
    spec = RunSpec(
        name="locust",
        target=model,
        model=model,
        people=chosen.num_users or 1,
        timeout_s=chosen.turn_timeout,
        think_time_ms=chosen.think_time,
        live=live,
        barge_in=chosen.barge_in,
        recordings=recordings(ROOT / "samples") if live or model == REAL_MODEL else (),
    )
    caller = Caller(environment.host, spec)
    environment.events.test_stop.add_listener(lambda **_: caller.close())
    attach(environment, Plan(spec, Session(caller, spec.timeout_s), time.monotonic_ns()))
