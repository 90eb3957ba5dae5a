"""The ledger: where the time of devices and of people went, from a run's folder alone.

run        reads the folder           phases    what a turn did when, and the passes beside it
request    the request book           device    the device book
stall      what encoder passes cost   verdict   which disease, and what to change
report     `explain`, `compare`       (loadtest.rulers: how fast, how smooth)
"""

from loadtest.ledger.explanation import Explanation
from loadtest.ledger.report import compare, explain

__all__ = ["Explanation", "compare", "explain"]
