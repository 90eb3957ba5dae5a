"""The process that makes the load: `python -m loadtest.load.generator RUN_FOLDER ADDRESS`.

It is a process of its own so that whoever started it is never patched by gevent.
"""

import sys
from pathlib import Path

from gevent import monkey


def main(folder: Path, address: str) -> None:
    """Make sockets, threads and gRPC green before anything uses them, then run."""
    monkey.patch_all()
    import grpc.experimental.gevent

    grpc.experimental.gevent.init_gevent()
    from loadtest.load.drive import drive

    drive(folder, address)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
