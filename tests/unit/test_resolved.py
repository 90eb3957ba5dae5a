"""Replicas by DNS: a real server on a loopback port is asked, and changes its mind."""

import errno
import socket
import time
from collections.abc import Callable, Iterator

import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver
import pytest
from dnslib import RCODE

from loadtest.operate.names import Names, naming
from python_backends.remote_stage import resolved
from python_backends.remote_stage.placement import VARIABLE, Placement, source_of
from python_backends.remote_stage.resolved import DnsName, Resolved, asking, named_stages
from python_backends.scheduling.replicas import Listed

NAME = "think.tristage.svc"
A = dns.rdatatype.A


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    monkeypatch.setattr(resolved, "ASK_EVERY_S", 0.02)
    monkeypatch.setattr(resolved, "TIMEOUT_S", 0.3)
    with naming() as found:
        yield found


def environment(names: Names) -> dict[str, str]:
    return {
        resolved.VARIABLE: f"speak=elsewhere:1 think={NAME}:8001",
        resolved.SERVER_VARIABLE: names.address,
    }


class Watched:
    """What a source tells, and what it complains of."""

    def __init__(self, names: Names) -> None:
        self.told: list[str] = []
        self.source = source_of("think", self.told.append, environment(names))
        self.listed: list[Listed] = []

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 5.0
        while not holds():
            assert time.monotonic() < deadline, "it never came true"
            self.listed = self.source.changed() or self.listed
            time.sleep(0.005)

    @property
    def taking(self) -> set[str]:
        return {one.name for one in self.listed if not one.draining}


@pytest.fixture
def watched(names: Names) -> Iterator[Watched]:
    found = Watched(names)
    yield found
    found.source.close()


def test_replicas_appear_and_drain_as_the_name_changes(names: Names, watched: Watched) -> None:
    names.put(NAME, "127.0.0.2", "::1")
    watched.until(lambda: watched.taking == {"127.0.0.2:8001", "[::1]:8001"})
    names.put(NAME, "127.0.0.2", "127.0.0.3")
    watched.until(lambda: watched.taking == {"127.0.0.2:8001", "127.0.0.3:8001"})
    assert Listed("[::1]:8001", "[::1]:8001", draining=True) in watched.listed
    assert watched.source.changed() is None


@pytest.mark.parametrize("trouble", [RCODE.NXDOMAIN, RCODE.SERVFAIL])
def test_trouble_changes_nothing_and_is_told_once(
    names: Names, watched: Watched, trouble: int
) -> None:
    names.put(NAME, "127.0.0.2")
    watched.until(lambda: watched.taking == {"127.0.0.2:8001"})
    watched.told.clear()
    names.trouble, asked = trouble, names.asked
    watched.until(lambda: names.asked > asked + 8)
    assert watched.source.changed() is None
    assert watched.taking == {"127.0.0.2:8001"}
    kinds = sorted(line.split()[0] for line in watched.told)
    assert kinds == ["A", "AAAA"]
    assert all(NAME in line for line in watched.told)
    names.trouble = None
    names.add(NAME, "127.0.0.3")
    watched.until(lambda: watched.taking == {"127.0.0.2:8001", "127.0.0.3:8001"})


def test_a_server_that_is_silent_holds_up_nobody(names: Names) -> None:
    told: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{deaf.getsockname()[1]}"
        ask = asking({resolved.SERVER_VARIABLE: where})
        source = Resolved(DnsName(NAME, 8001), ask, told.append)
        began = time.monotonic()
        assert source.changed() is None
        assert time.monotonic() - began < 0.2
        deadline = time.monotonic() + 5.0
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)
        source.close()
    assert "LifetimeTimeout" in told[0]


class Outage:
    """Fails as it is told to, question after question, the last way for ever."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)
        self.asked = 0

    def __call__(self, name: str, kind: object) -> frozenset[str]:
        self.asked += kind == A
        failure = self.failures.pop(0) if len(self.failures) > 1 else self.failures[0]
        if failure is not None:
            raise failure
        return frozenset()

    def until_asked(self, times: int) -> None:
        deadline = time.monotonic() + 5.0
        while self.asked < times:
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_a_server_that_never_answers_is_told_once_however_long_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the failure says holds the time that it took, which is another each time."""
    monkeypatch.setattr(resolved, "ASK_EVERY_S", 0.01)
    monkeypatch.setattr(resolved, "TIMEOUT_S", 0.05)
    told: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        asked = asking({resolved.SERVER_VARIABLE: f"127.0.0.1:{port}"})
        rounds: list[object] = []

        def ask(name: str, kind: dns.rdatatype.RdataType) -> frozenset[str]:
            rounds.append(kind)
            return asked(name, kind)

        source = Resolved(DnsName(NAME, 8001), ask, told.append)
        deadline = time.monotonic() + 5.0
        while len(rounds) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        source.close()
    assert [line.split()[0] for line in told] == ["A", "AAAA"]


def test_faults_that_take_turns_are_told_once_each_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolved, "ASK_EVERY_S", 0.001)
    monkeypatch.setattr(resolved, "KINDS", (A,))
    late, refused = dns.exception.Timeout(), OSError(errno.ECONNREFUSED, "refused")
    unreachable = OSError(errno.ENETUNREACH, "unreachable")
    outage = Outage(late, refused, late, unreachable, refused, late, None, late, None)
    told: list[str] = []
    source = Resolved(DnsName(NAME, 8001), outage, told.append)
    outage.until_asked(10)
    source.close()
    assert [line.rpartition(":")[2].strip() for line in told] == [
        "The DNS operation timed out.",
        "[Errno 111] refused",
        "[Errno 101] unreachable",
        "The DNS operation timed out.",
    ]


def test_a_bug_in_the_thread_is_whoever_looks() -> None:
    def broken(name: str, kind: object) -> frozenset[str]:
        raise KeyError(name)

    source = Resolved(DnsName(NAME, 8001), broken, print)
    source._thread.join(5.0)
    with pytest.raises(RuntimeError, match="nobody asks DNS"):
        source.changed()


def test_a_short_name_is_looked_for_in_the_search_domains(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_resolv_conf(configure: bool) -> dns.resolver.Resolver:
        assert configure
        found.nameservers, found.port = ["127.0.0.1"], names.port
        found.search = [dns.name.from_text("tristage.svc.cluster.local")]
        return found

    found = dns.resolver.Resolver(configure=False)
    monkeypatch.setattr(dns.resolver, "Resolver", of_resolv_conf)
    names.put("think.tristage.svc.cluster.local", "127.0.0.4")
    assert asking({})("think", A) == {"127.0.0.4"}


def test_a_stage_without_a_name_is_looked_for_in_the_file(names: Names) -> None:
    given = environment(names) | {VARIABLE: "/none.json"}
    assert isinstance(source_of("encode", print, given), Placement)


@pytest.mark.parametrize("text", ["think", "think=", "think=host", "think=host:0", "think=:80"])
def test_what_is_no_name_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="STAGE=NAME:PORT"):
        named_stages(text)


def test_names_of_several_stages() -> None:
    found = named_stages("think=think.tristage.svc:8001\n encode=listen:8001 ")
    assert found == {
        "think": DnsName("think.tristage.svc", 8001),
        "encode": DnsName("listen", 8001),
    }
