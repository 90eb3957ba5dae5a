"""Faults and failed turns, for those who run the server; callers are told less."""

import json
import os
import traceback
from typing import Final

import triton_python_backend_utils as pb_utils

from python_backends.errors import StageError
from python_backends.log_format import LOG_FORMAT

LOG_TEXT = "TRISTAGE_LOG_TEXT"
"""The environment variable that lets what a fault quotes into the log: perhaps a caller's words."""

QUOTING: Final = ("INVALID_INPUT",)
"""Errors whose words may be a caller's."""


def log_fault(
    what: str, fault: BaseException, *, quote: bool = False, stage: str = "", turn: str = ""
) -> None:
    """Write it to the server's log, with where it came from. Its own words are left out, as they
    may be a caller's, unless LOG_TEXT is 1; `quote`: they cannot be."""
    quote = quote or os.environ.get(LOG_TEXT) == "1"
    trace = "".join(traceback.format_exception(fault)) if quote else _places(fault)
    if is_json():
        told = {"event": "fault", "message": what, "stage": stage, "turn": turn}
        pb_utils.Logger.log_error(_object(**told, exception=type(fault).__name__, stack=trace))
    else:
        pb_utils.Logger.log_error(f"{what}\n{trace}")


def log_failed_turn(error: StageError, stage: str, turn: str, traceparent: str) -> None:
    """Write how a turn ended at a stage, where the log is JSON: what callers do wrong or give up
    as information, what the server could not do as a warning, what broke as an error."""
    if not is_json():
        return
    quotes = error.code in QUOTING and os.environ.get(LOG_TEXT) != "1"
    told = _object(
        event="turn_failed",
        message="(a caller's words)" if quotes else error.message,
        stage=stage,
        failed_at=error.stage,
        turn=turn,
        trace=traceparent.split("-")[1] if traceparent.count("-") == 3 else "",
        code=error.code,
        reason=error.reason,
    )
    match error.code:
        case "CANCELLED" | "INVALID_INPUT":
            pb_utils.Logger.log_info(told)
        case "OVERLOADED" | "DEADLINE_MISSED":
            pb_utils.Logger.log_warn(told)
        case _:
            pb_utils.Logger.log_error(told)


def is_json() -> bool:
    """Messages are JSON objects."""
    return os.environ.get(LOG_FORMAT) == "json"


def _object(**fields: str) -> str:
    """On one line, without what is empty."""
    return json.dumps({key: value for key, value in fields.items() if value})


def log_warning(what: str) -> None:
    """Write what is wrong with the surroundings, and quotes no caller, to the server's log."""
    pb_utils.Logger.log_warn(what)


def _places(fault: BaseException) -> str:
    """The traceback of a fault and of those behind it, each with its type alone."""
    found: list[str] = []
    seen: set[int] = set()
    one: BaseException | None = fault
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        found.append("".join([*traceback.format_tb(one.__traceback__), type(one).__qualname__]))
        one = one.__cause__ or one.__context__
    return "\nbecause of\n".join(found) + f"\n({LOG_TEXT}=1 shows what they say)"
