"""Replicas by DNS: a stage's name, asked again and again by a thread of its own."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import dns.exception
import dns.rdatatype
import dns.resolver

from python_backends.scheduling.addresses import Addresses, Named
from python_backends.scheduling.replicas import Listed

VARIABLE: Final = "TRISTAGE_PLACEMENT_DNS"
"""Stages and the names of their replicas: "think=think.tristage.svc:8001 encode=listen:8001"."""

SERVER_VARIABLE: Final = "TRISTAGE_DNS_SERVER"
"""Who is asked, as address:port; without it as resolv.conf says, with its search domains."""

ASK_EVERY_S: Final = 1.0
TIMEOUT_S: Final = 2.0
KINDS: Final = (dns.rdatatype.A, dns.rdatatype.AAAA)

Ask = Callable[[str, dns.rdatatype.RdataType], Addresses]
"""(name, record type) -> addresses. DNSException when nobody can tell."""

Fault = tuple[type[Exception], int | None]
"""A kind of failure: its type and, of the system's, its number."""

Tell = Callable[[str], None]
"""Takes what went wrong, in words."""


@dataclass(frozen=True)
class DnsName:
    """A name and the port of every replica behind it."""

    name: str
    port: int

    @classmethod
    def of(cls, text: str) -> "DnsName":
        """From "name:port". ValueError for anything else."""
        name, _, port = text.rpartition(":")
        if not name or not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise ValueError(f"{text!r} is not NAME:PORT")
        return cls(name, int(port))


def named_stages(text: str) -> dict[str, DnsName]:
    """Stage -> name, from the value of VARIABLE. ValueError tells what is accepted."""
    found: dict[str, DnsName] = {}
    for part in text.split():
        stage, _, where = part.partition("=")
        try:
            found[stage] = DnsName.of(where)
        except ValueError as fault:
            raise ValueError(f"{VARIABLE}: {part!r} is not STAGE=NAME:PORT ({fault})") from fault
    return found


def asking(environment: Mapping[str, str] = os.environ) -> Ask:
    """Questions to the server that the environment names, or to those of resolv.conf. ValueError
    when what it names is no address:port."""
    given = environment.get(SERVER_VARIABLE, "")
    resolver = dns.resolver.Resolver(configure=not given)
    if given:
        server = DnsName.of(given)
        resolver.nameservers, resolver.port = [server.name], server.port

    def ask(name: str, kind: dns.rdatatype.RdataType) -> Addresses:
        answer = resolver.resolve(
            name, kind, search=True, lifetime=TIMEOUT_S, raise_on_no_answer=False
        )
        return frozenset(record.address for record in answer.rrset or ())

    return ask


class Resolved:
    """Who serves a stage, as the answers say; a `Source` of RemoteLoop.

    A question without an answer (no such name, a time-out, a server that fails) changes nothing of
    what is known; `tell` hears once of each kind of fault until there is an answer again.
    """

    def __init__(
        self, where: DnsName, ask: Ask, tell: Tell, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._where = where
        self._ask = ask
        self._tell = tell
        self._clock = clock
        self._named = Named(where.port)
        self._listed: list[Listed] | None = None
        self._given: list[Listed] | None = None
        self._told: dict[str, set[Fault]] = defaultdict(set)
        self._bug: Exception | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dns", daemon=True)
        self._thread.start()

    def changed(self) -> list[Listed] | None:
        """The replicas, where they are others than at the last look; else None. Never waits. A bug
        that has ended the thread is raised here."""
        if self._bug is not None:
            raise RuntimeError("nobody asks DNS any more") from self._bug
        if self._listed == self._given:
            return None
        self._given = self._listed
        return self._given

    def close(self) -> None:
        """Ask no more."""
        self._closing.set()

    def _watch(self) -> None:
        try:
            while not self._closing.is_set():
                self._listed = self._look()
                self._closing.wait(ASK_EVERY_S)
        except Exception as bug:
            self._bug = bug

    def _look(self) -> list[Listed]:
        answers = {kind.name: self._answer(kind) for kind in KINDS}
        return self._named.heard(answers, self._clock())

    def _answer(self, kind: dns.rdatatype.RdataType) -> Addresses | None:
        told = self._told[kind.name]
        try:
            found = self._ask(self._where.name, kind)
        except (dns.exception.DNSException, OSError) as failure:
            if (fault := _fault(failure)) not in told:
                told.add(fault)
                why = f"{type(failure).__name__}: {failure}"
                self._tell(f"{kind.name} of {self._where.name}: {why}")
            return None
        told.clear()
        return found


def _fault(failure: Exception) -> Fault:
    """What is the same each time; the words are not, which hold how long it took."""
    return type(failure), getattr(failure, "errno", None)
