"""How the log is written."""

from typing import Final

LOG_FORMAT: Final = "TRISTAGE_LOG_FORMAT"
"""The environment variable that, as "json", has every message be a JSON object with the turn's id,
and failed turns told of as well."""
