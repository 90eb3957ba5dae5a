"""Load: people who speak turns to a server, and a record of how they fared."""

from loadtest.load.errors import GeneratorFailed
from loadtest.load.runner import bars, run
from loadtest.load.spec import RunSpec

__all__ = ["GeneratorFailed", "RunSpec", "bars", "run"]
