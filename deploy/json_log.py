"""A log for machines: one JSON object a line, of launcher, keeper, server and stages.

Every line has `time` (RFC 3339, UTC), `level` (info, warning, error), `process` and `message`; of
stages `stage`, and `turn`, `trace`, `code` and `reason` where a turn failed.
"""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from deploy.server_log import ServerLog, Tail

POLL_S: Final = 0.2
MOST_LINES: Final = 500
MOST_CHARACTERS: Final = 1 << 16
MOST_AGE: Final = timedelta(seconds=1)
"""A record that is longer, or waits longer for its end, goes on in another one."""

_LONGEST_LINE: Final = 1 << 20
"""Bytes that are waited for without a line's end."""

MISSING: Final = "lines of the server's log are missing here: it was cut before they were read"
_LAST_PIECES: Final = 64
"""Of a log that is left, so that one which is written without a pause has an end, too."""

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
    @property
    def alive(self) -> bool: ...


class JsonLog:
    """Writes objects, one a line. Any thread may."""

    def __init__(self, write: Callable[[str], object] = sys.stdout.write) -> None:
        self._write = write
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Progress of a start."""
        self.write(_launcher("progress", "info", text))

    def told(self, kind: str, what: str, **more: str) -> None:
        """What a keeper or a watchdog tells; `more`: of whom."""
        if named := _MODEL.match(what):
            more["stage"] = named[1]
        self.write(_launcher(kind, _KINDS.get(kind, "info"), what) | more)

    def write(self, record: Record) -> None:
        """One object."""
        told = json.dumps(record, ensure_ascii=False)
        text = told.encode(errors="backslashreplace").decode()  # half a pair of UTF-16
        with self._lock:
            self._write(text + "\n")
            if self._write == sys.stdout.write:
                sys.stdout.flush()


class Reader:
    """Lines of a server's log in, records out: each once the next one has begun, or at `flush`, or
    when it has become too long or too old to wait for more lines of it."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._record: Record | None = None
        self._own: Record | None = None
        """What a stage told as an object: lines after it are none of its."""

        self._lines: list[str] = []
        self._length = 0
        self._began = now()

    def take(self, line: str) -> Record | None:
        """The record that ends before this line, if one does."""
        found = _LINE.fullmatch(line)
        if found is None and self._has_room(line):
            self._add(line)
            return None
        done = self.flush()
        self._began = self._now()
        self._record = record = _server(found, line, self._began)
        self._own = _own(record)
        self._add(record["message"])
        return done

    def flush(self) -> Record | None:
        """The last record, when nothing more has come for a while."""
        done = self._own or self._record
        if done is not None and self._own is None:
            done["message"] = "\n".join(self._lines)
        self._record, self._own, self._lines, self._length = None, None, [], 0
        return done

    def _has_room(self, line: str) -> bool:
        return (
            self._record is not None
            and self._own is None
            and len(self._lines) < MOST_LINES
            and self._length + len(line) <= MOST_CHARACTERS
            and self._now() - self._began <= MOST_AGE
        )

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._length += len(line)


class Follower:
    """Tells what one log file has, from its beginning. For one thread."""

    def __init__(self, log: ServerLog, write: Write) -> None:
        self._tail, self._reader, self._rest = Tail(log), Reader(), b""
        self._write = write

    def look(self) -> bool:
        """Tell what is new; whether there was anything."""
        new, misses = self._tail.read()
        if misses:
            self._rest = b""  # of a line whose end is missing
            self._tell(self._reader.flush())
            self._write(_launcher("missing", "warning", MISSING))
        *lines, self._rest = (self._rest + new).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._line(line)
        if not new:
            self._tell(self._reader.flush())
        return bool(new)

    def end(self) -> None:
        """Tell the rest: nothing more is written."""
        for _ in range(_LAST_PIECES):
            if not self.look():
                break
        if self._rest:
            self._line(self._rest)
        self._tell(self._reader.flush())

    def _line(self, line: bytes) -> None:
        self._tell(self._reader.take(line.decode(errors="replace")))

    def _tell(self, record: Record | None) -> None:
        if record is not None:
            self._write(record)


class _Kept:
    """Follows a server from one log to the next. For one thread."""

    def __init__(self, server: Logs, write: Write) -> None:
        self._server = server
        self._write = write
        self._log: ServerLog | None = None
        self._follower: Follower | None = None

    def look(self) -> bool:
        """Tell what is new; whether there was anything."""
        log = self._server.log
        if self._follower is not None and log is self._log:
            return self._follower.look()
        self.end()
        if log.path.exists():  # otherwise its server is about to begin
            self._log, self._follower = log, Follower(log, self._write)
        return self._follower is not None

    def end(self) -> None:
        """Tell the rest of a log that is left."""
        if self._follower is not None:
            self._follower.end()
        self._follower = None


def following(server: Logs, write: Write) -> AbstractContextManager[None]:
    """What a server writes into its log is passed on while the block runs, over its restarts."""
    return following_all(lambda: {"": server}, write)


@contextmanager
def following_all(servers: Callable[[], Mapping[str, Logs]], write: Write) -> Iterator[None]:
    """The same of several, who come and go; records tell whose they are, by `server`."""
    closing = threading.Event()
    thread = threading.Thread(target=_follow, args=(servers, write, closing), name="log")
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


def _follow(
    servers: Callable[[], Mapping[str, Logs]], write: Write, closing: threading.Event
) -> None:
    kept: dict[Logs, _Kept] = {}
    last = False
    while not last:
        last, now = closing.is_set(), servers()
        for name, server in now.items():
            if server not in kept:
                kept[server] = _Kept(server, _naming(name, write))
        for server in [one for one in kept if one not in now.values() and not one.alive]:
            kept.pop(server).end()
        busy = [one.look() for one in kept.values()]
        if not any(busy):
            closing.wait(POLL_S)
    for one in kept.values():
        one.end()


def _naming(name: str, write: Write) -> Write:
    return (lambda record: write({**record, "server": name})) if name else write


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


def _own(record: Record) -> Record | None:
    """What a stage told as an object takes the place of the message; None: no stage did."""
    try:
        told = json.loads(record["message"])
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, Mapping) or _OURS not in told:
        return None
    return {**record, "process": "stage", **told}


def _unescaped(told: str) -> str:
    """The server writes a message as a JSON string."""
    try:
        text = json.loads(told)
    except ValueError:
        return told
    return text if isinstance(text, str) else told


def _moment(day: str, clock: str, now: datetime) -> datetime:
    """The server leaves the year out: the one that puts it closest before now. Now, where it is no
    moment at all: anybody may print such a line."""
    year = now.year - (day > now.strftime("%m%d"))
    try:
        found = datetime.strptime(f"{year}{day} {clock}", "%Y%m%d %H:%M:%S.%f")
    except ValueError:
        return now
    return found.replace(tzinfo=UTC)


def _launcher(event: str, level: str, message: str) -> Record:
    now = _rfc3339(datetime.now(UTC))
    told = {"time": now, "level": level, "process": "launcher", "event": event}
    return {**told, "message": message}


def _rfc3339(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
