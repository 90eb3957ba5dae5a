"""Faults, for those who run the server; callers are told less."""

import os
import traceback

import triton_python_backend_utils as pb_utils

LOG_TEXT = "TRISTAGE_LOG_TEXT"
"""The environment variable that lets what a fault quotes into the log: perhaps a caller's words."""


def log_fault(what: str, fault: BaseException, *, quote: bool = False) -> None:
    """Write it to the server's log, with where it came from. Its own words are left out, as they
    may be a caller's, unless LOG_TEXT is 1; `quote`: they cannot be."""
    quote = quote or os.environ.get(LOG_TEXT) == "1"
    trace = "".join(traceback.format_exception(fault)) if quote else _places(fault)
    pb_utils.Logger.log_error(f"{what}\n{trace}")


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
