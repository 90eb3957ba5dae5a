"""How a launcher in the foreground tells of its server: to a person, or to a machine."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from deploy.json_log import JsonLog, following
from deploy.launcher import Server
from deploy.progress import Line
from python_backends.log_format import LOG_FORMAT

TEXT: Final = "text"
JSON: Final = "json"


class Text:
    """Tells a person; `ready` makes what is said of a server that serves."""

    def __init__(self, ready: Callable[[Server], str]) -> None:
        self.progress: Callable[[str], None] = Line()
        self._ready = ready

    def ready(self, server: Server) -> None:
        """The server serves."""
        print(self._ready(server), flush=True)

    def beside(self, server: Server) -> AbstractContextManager[None]:
        """What is told meanwhile, while the block runs."""
        return nullcontext()

    def told(self, kind: str, what: str) -> None:
        """What happens: what a keeper tells, a drain, the end."""
        match kind:
            case "draining" | "drained" | "stopped":
                print(f"\n{what}", flush=True)
            case _:
                print(f"{kind}: {what}", file=sys.stderr, flush=True)


class Json:
    """Tells a machine: every line is a JSON object, those of the server and its stages as well."""

    def __init__(self) -> None:
        self._log = JsonLog()
        self.progress = self._log

    def ready(self, server: Server) -> None:
        """See Text."""
        self._log.told("serving", f"{addresses(server)}; {len(server.models)} models")

    def beside(self, server: Server) -> AbstractContextManager[None]:
        """See Text."""
        return following(server, self._log.write)

    def told(self, kind: str, what: str) -> None:
        """See Text."""
        self._log.told(kind, what)


def addresses(server: Server) -> str:
    """On one line."""
    found = {
        "grpc": server.grpc_address,
        "http": server.http_address,
        "metrics": server.metrics_address,
    }
    return ", ".join(f"{name} {address}" for name, address in found.items())


def telling(options: argparse.Namespace, ready: Callable[[Server], str]) -> Text | Json:
    """As `--log-format` asks."""
    return Json() if options.log_format == JSON else Text(ready)


def failure(options: argparse.Namespace, why: str) -> None:
    """The command has failed."""
    if getattr(options, "log_format", TEXT) == JSON:
        JsonLog().told("failed", why)
    else:
        print(f"error: {why}", file=sys.stderr)


def add_log_format(parser: argparse.ArgumentParser) -> None:
    """The option, whose default the environment may name."""
    parser.add_argument(
        "--log-format",
        type=_log_format,
        default=os.environ.get(LOG_FORMAT, TEXT),
        metavar="text|json",
        help=f"json: one object a line on stdout, with the ids of failed turns (${LOG_FORMAT})",
    )


def environment(options: argparse.Namespace) -> dict[str, str]:
    """What a server is to be told of it, where it is not in the environment already."""
    is_known = options.log_format == os.environ.get(LOG_FORMAT, TEXT)
    return {} if is_known else {LOG_FORMAT: options.log_format}


def _log_format(text: str) -> str:
    """Also of the environment variable."""
    if text not in (TEXT, JSON):
        raise argparse.ArgumentTypeError(f"{text!r} is no format of the log; text and json are")
    return text
