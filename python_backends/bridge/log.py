"""Faults that end one request only, and are to be seen by those who run the server."""

import traceback

import triton_python_backend_utils as pb_utils


def log_fault(what: str, fault: BaseException) -> None:
    """Write it with its traceback to the server's log; callers are told less."""
    trace = "".join(traceback.format_exception(fault))
    pb_utils.Logger.log_error(f"{what}\n{trace}")
