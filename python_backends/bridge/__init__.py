"""The only code of the stages that knows Triton.

`StageBackend` is what a stage's `model.py` derives from; `Request` is one open request, answered
exactly once; `call` runs another model; `Options` are the parameters a caller may send.
"""

from python_backends.bridge.backend import Loop, StageBackend
from python_backends.bridge.board import Board, Row
from python_backends.bridge.calls import call
from python_backends.bridge.config import ModelConfig
from python_backends.bridge.events import span
from python_backends.bridge.inbox import Arrived, CancelTurn, Closed, Event, Inbox, Wake
from python_backends.bridge.log import log_fault, log_warning
from python_backends.bridge.meters import Meters
from python_backends.bridge.options import Options
from python_backends.bridge.plain import PlainBackend
from python_backends.bridge.request import InSequence, Request
from python_backends.bridge.tensors import Array

__all__ = [
    "Array",
    "Arrived",
    "Board",
    "CancelTurn",
    "Closed",
    "Event",
    "InSequence",
    "Inbox",
    "Loop",
    "Meters",
    "ModelConfig",
    "Options",
    "PlainBackend",
    "Request",
    "Row",
    "StageBackend",
    "Wake",
    "call",
    "log_fault",
    "log_warning",
    "span",
]
