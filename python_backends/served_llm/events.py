"""Server-sent events, as they come in pieces of any size. Pure.

https://html.spec.whatwg.org/multipage/server-sent-events.html: lines end with CR LF, LF or CR, an
empty one ends an event, and one that begins with a colon is a comment.
"""

from typing import Final

MOST_BYTES: Final = 2**20
"""Of one event: an answer's largest one has some hundreds."""


class EventTooLong(Exception):
    """An event without end."""


class EventStream:
    """Bytes to the data of events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def add(self, fresh: bytes) -> list[str]:
        """The data of events that are complete now; those without any are left out. EventTooLong
        when one exceeds MOST_BYTES."""
        text = (self._rest + fresh).replace(b"\r\n", b"\n")
        if text.endswith(b"\r"):  # an LF may follow
            text, held = text[:-1], b"\r"
        else:
            held = b""
        *lines, self._rest = text.replace(b"\r", b"\n").split(b"\n")
        self._rest += held
        found = [data for line in lines if (data := self._line(line)) is not None]
        if len(self._rest) + sum(map(len, self._data)) > MOST_BYTES:
            raise EventTooLong
        return found

    def _line(self, line: bytes) -> str | None:
        """Data of the event that this line ends, if it ends one."""
        if not line:
            data, self._data = self._data, []
            return "\n".join(data) if data else None
        name, _, value = line.decode(errors="replace").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        return None
