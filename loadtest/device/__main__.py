"""`python -m loadtest.device`: what the emulated device itself costs, on this machine, as JSON."""

import json
import tempfile
from pathlib import Path

from loadtest.device.overhead import measure


def main() -> int:
    """Print the JSON."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        print(json.dumps(measure(Path(folder)), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
