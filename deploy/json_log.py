"""A log for machines: one JSON object a line, of launcher, keeper, server and stages.

Every line has `time` (RFC 3339, UTC), `level` (info, warning, error), `process` and `message`; of
stages `stage`, and `turn`, `trace`, `code` and `reason` where a turn failed.
"""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from deploy.server_log import ServerLog

POLL_S: Final = 0.2
_LINE: Final = re.compile(
    r"(?P<level>[IWEFS])(?P<day>\d{4}) (?P<clock>\d\d:\d\d:\d\d\.\d+) +(?P<pid>\d+) "
    r"(?P<source>[^\]\s]+:\d+)\] (?P<told>.*)"
)
"""How tritonserver begins a message, in UTC; lines without it belong to the one before."""

_LEVELS: Final = {"I": "info", "W": "warning", "E": "error", "F": "error", "S": "info"}
_KINDS: Final = {"lost": "warning", "down": "error", "failed": "error"}
"""What a keeper tells; anything else is information."""

_MODEL: Final = re.compile(r"^model '([^']+)'")
_OURS: Final = "event"
"""A key of every object that our stages write."""

Record = dict[str, Any]
Write = Callable[[Record], None]


class Logs(Protocol):
    """Has a log, perhaps another one after a restart."""

    @property
    def log(self) -> ServerLog: ...


class JsonLog:
    """Writes objects, one a line. Any thread may."""

    def __init__(self, write: Callable[[str], object] = sys.stdout.write) -> None:
        self._write = write
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Progress of a start."""
        self.write(_launcher("progress", "info", text))

    def told(self, kind: str, what: str) -> None:
        """What a keeper or a watchdog tells."""
        named = _MODEL.match(what)
        more = {"stage": named[1]} if named else {}
        self.write(_launcher(kind, _KINDS.get(kind, "info"), what) | more)

    def write(self, record: Record) -> None:
        """One object."""
        with self._lock:
            self._write(json.dumps(record, ensure_ascii=False) + "\n")
            if self._write == sys.stdout.write:
                sys.stdout.flush()


class Reader:
    """Lines of a server's log in, records out: each once the next one has begun, or at `flush`."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._record: Record | None = None

    def take(self, line: str) -> Record | None:
        """The record that ends before this line, if one does."""
        found = _LINE.fullmatch(line)
        if found is None and self._record is not None:
            self._record["message"] += f"\n{line}"
            return None
        done, self._record = self._record, _server(found, line, self._now())
        return done

    def flush(self) -> Record | None:
        """The last record, when nothing more has come for a while."""
        done, self._record = self._record, None
        return done


@contextmanager
def following(server: Logs, write: Write) -> Iterator[None]:
    """What a server writes into its log is passed on while the block runs, over its restarts."""
    closing = threading.Event()
    thread = threading.Thread(target=_follow, args=(server, write, closing), name="log")
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


def _follow(server: Logs, write: Write, closing: threading.Event) -> None:
    """One file after another, each to its end."""
    last = False
    while not last:
        path, reader, rest = server.log.path, Reader(), ""
        if not path.exists():  # a server that is about to begin
            last = closing.wait(POLL_S)
            continue
        with path.open(errors="replace", newline="\n") as file:
            while True:
                last = closing.wait(POLL_S)
                ended = last or server.log.path != path
                new = file.read()
                *lines, rest = (rest + new).split("\n")
                for record in map(reader.take, lines):
                    if record is not None:
                        write(_own(record))
                if (not new or ended) and (record := reader.flush()) is not None:
                    write(_own(record))
                if ended:
                    break


def _server(found: "re.Match[str] | None", line: str, now: datetime) -> Record:
    if found is None:
        return {"time": _rfc3339(now), "level": "info", "process": "tritonserver", "message": line}
    return {
        "time": _rfc3339(_moment(found["day"], found["clock"], now)),
        "level": _LEVELS[found["level"]],
        "process": "tritonserver",
        "pid": int(found["pid"]),
        "source": found["source"],
        "message": _unescaped(found["told"]),
    }


def _own(record: Record) -> Record:
    """What a stage told as an object takes the place of the message."""
    try:
        told = json.loads(record["message"])
    except ValueError:
        return record
    if not isinstance(told, Mapping) or _OURS not in told:
        return record
    return {**record, "process": "stage", **told}


def _unescaped(told: str) -> str:
    """The server writes a message as a JSON string."""
    try:
        text = json.loads(told)
    except ValueError:
        return told
    return text if isinstance(text, str) else told


def _moment(day: str, clock: str, now: datetime) -> datetime:
    """The server leaves the year out: the one that puts it closest before now."""
    year = now.year - (day > now.strftime("%m%d"))
    return datetime.strptime(f"{year}{day} {clock}", "%Y%m%d %H:%M:%S.%f").replace(tzinfo=UTC)


def _launcher(event: str, level: str, message: str) -> Record:
    now = _rfc3339(datetime.now(UTC))
    told = {"time": now, "level": level, "process": "launcher", "event": event}
    return {**told, "message": message}


def _rfc3339(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
