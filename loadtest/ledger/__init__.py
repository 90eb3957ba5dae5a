"""The ledger: where the time of devices and of people went, from a run's folder alone.

run        reads the folder           phases    what a turn did when, and the passes beside it
request    the request book           device    the device book
stall      what encoder passes cost   verdict   which disease, and what to change
report     `explain` and `compare`    (loadtest.rulers: how fast, how smooth)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loadtest.ledger.explanation import Explanation
    from loadtest.ledger.report import compare, explain

__all__ = ["Explanation", "compare", "explain"]


def __getattr__(name: str) -> Any:
    """On first use: the rulers read a run without the pictures, and are themselves used here."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where = "explanation" if name == "Explanation" else "report"
    return getattr(import_module(f"{__name__}.{where}"), name)
