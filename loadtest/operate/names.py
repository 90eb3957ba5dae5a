"""A small real DNS server on a loopback port, whose names can be changed while it answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dnslib import AAAA, QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSLogger, DNSServer

LOOPBACK = "127.0.0.1"
TTL_S = 1


class Names(BaseResolver):  # type: ignore[misc]
    """The records of one zone. `trouble`: a code of RFC 1035 that every question is answered with;
    a name that was never set is NXDOMAIN, one without addresses is an empty answer."""

    def __init__(self) -> None:
        self.trouble: int | None = None
        self.asked = 0
        self.port = 0
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """Of the server, as "address:port"."""
        return f"{LOOPBACK}:{self.port}"

    def addresses(self, name: str) -> tuple[str, ...]:
        """What a name stands for now."""
        with self._lock:
            return self._addresses.get(name, ())

    def put(self, name: str, *addresses: str) -> None:
        """Let a name stand for these addresses, IPv4 and IPv6, and no others."""
        with self._lock:
            self._addresses[name] = addresses

    def add(self, name: str, address: str) -> None:
        """One more address."""
        self.put(name, *self.addresses(name), address)

    def remove(self, name: str, address: str) -> None:
        """One address less."""
        self.put(name, *(one for one in self.addresses(name) if one != address))

    def resolve(self, request: DNSRecord, handler: object) -> DNSRecord:
        """See dnslib."""
        self.asked += 1
        reply, name = request.reply(), str(request.q.qname).rstrip(".")
        with self._lock:
            found = self._addresses.get(name)
        if self.trouble is not None or found is None:
            reply.header.rcode = RCODE.NXDOMAIN if self.trouble is None else self.trouble
            return reply
        for address in found:
            kind, data = (QTYPE.AAAA, AAAA) if ":" in address else (QTYPE.A, A)
            if request.q.qtype == kind:
                reply.add_answer(RR(request.q.qname, kind, rdata=data(address), ttl=TTL_S))
        return reply


@contextmanager
def naming() -> Iterator[Names]:
    """Names that can be asked for while the block runs."""
    names = Names()
    quiet = DNSLogger(log="-request,-reply,-truncated,-error", prefix=False)
    server = DNSServer(names, address=LOOPBACK, port=0, logger=quiet)
    names.port = server.server.server_address[1]
    server.start_thread()
    try:
        yield names
    finally:
        server.stop()
        server.server.server_close()
