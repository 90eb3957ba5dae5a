"""A wire between two hosts that are namespaces of one machine: slow, lossy or cut, as a test asks.

Each namespace has a TUN device, and a process carries every packet from one to the other: TCP above
it is the kernel's own, with its real retransmissions. It is a process and not a thread because a
thread would need the GIL twice a packet, and a busy caller lets go of it only every 5 ms.

Both hosts share the machine's clock, boot id, files, /dev/shm and cores: only the network is apart.

* Link, Host     what a test uses
* Carrier        the process
* the rest       how namespaces are made and removed
"""

import fcntl
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MTU = 1400
QUEUE_PACKETS = 10_000
"""Twice the window of 6 MB that Linux gives a TCP connection at most: no loss but ours."""
BURST_PACKETS = 64
"""Read from one end before the other gets its turn."""
NICENESS = -10
"""A wire stands for hardware: it does not wait until servers leave it a core."""
ANSWER_S = 10.0

TUN = Path("/dev/net/tun")
NAMESPACES = Path("/run/netns")
LOCK = Path("/run/tristage-wire.lock")
NETWORKS = [IPv4Network(f"10.90.{number}.0/24") for number in range(256)]
PROBE = "tuntap add wire mode tun\nlink add name near type veth peer name far\n"
OURS = re.compile(r"tristage-(?P<pid>\d+)-\d+-(left|right)")

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""From <linux/if_tun.h>."""


class LinkFailed(Exception):
    """The link could not be made, or its wire has died."""


@dataclass(frozen=True)
class Weather:
    """What a packet meets, in either direction."""

    delay_ms: float = 0.0
    loss: float = 0.0
    cut: bool = False

    def __post_init__(self) -> None:
        if not self.delay_ms >= 0:
            raise ValueError(f"delay_ms must not be negative: {self.delay_ms}")
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss is a probability: {self.loss}")


@dataclass(frozen=True)
class Counts:
    """Packets, both directions together."""

    carried: int = 0
    dropped: int = 0


@dataclass(frozen=True)
class Host:
    """One end of a link: a network namespace with its own loopback."""

    namespace: str
    address: str
    """On the wire."""
    outside_address: str
    """Reached from the caller's namespace and from nowhere else: past the wire, also when cut."""
    caller_address: str
    """The caller's namespace, as this host reaches it past the wire."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` on this host, as the very process that is started.

        Unlike `ip netns exec` it leaves /sys alone, and with it the control groups.
        """
        return ["nsenter", f"--net={NAMESPACES / self.namespace}", "--", *argv]


class Link:
    """Two network namespaces, joined by a wire that can be slow, lossy or cut.

    Leaving it kills what still runs on its hosts. Its methods may be called from any thread; before
    and after the `with` they note the weather, and the counts stand still.
    """

    left: Host
    right: Host

    def __init__(self, *, delay_ms: float = 0.0, loss: float = 0.0, seed: int = 0) -> None:
        self._weather = Weather(delay_ms, loss)
        self._seed = seed
        self._counts = Counts()
        self._control: socket.socket | None = None
        self._lock = threading.Lock()
        self._undo = ExitStack()

    @staticmethod
    def possible() -> str:
        """Why this machine cannot make a link; "" if it can."""
        if os.geteuid() != 0:
            return "a link needs root"
        if missing := [name for name in ("ip", "nsenter", "unshare") if not shutil.which(name)]:
            return f"a link needs {', '.join(missing)}"
        done = run("unshare", "--net", "ip", "-batch", "-", given=PROBE)
        return f"no namespaces, TUN or veth: {done.stderr.strip()}" if done.returncode else ""

    def __enter__(self) -> Self:
        """Raises LinkFailed or OSError, and leaves nothing behind then either."""
        with ExitStack() as undo:
            with one_at_a_time():
                sweep()
                self.left, self.right = hosts(free_network())
                ends = [undo.enter_context(furnished(host)) for host in (self.left, self.right)]
            self._control = undo.enter_context(carrying(*ends, seed=self._seed))
            self._tell()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._control = None
        self._undo.close()

    def set(self, *, delay_ms: float | None = None, loss: float | None = None) -> None:
        """From now on. What is under way keeps its delay, and nothing overtakes it."""
        asked = {"delay_ms": delay_ms, "loss": loss}
        self._tell(**{name: value for name, value in asked.items() if value is not None})

    def cut(self) -> None:
        """From now on nothing arrives, not even what is under way, and nobody is told."""
        self._tell(cut=True)

    def heal(self) -> None:
        """What is sent from now on arrives."""
        self._tell(cut=False)

    @property
    def carried(self) -> int:
        """Packets delivered, both directions together."""
        return self._tell().carried

    @property
    def dropped(self) -> int:
        """Packets lost or cut off, both directions together."""
        return self._tell().dropped

    def _tell(self, **changed: Any) -> Counts:
        """Change the weather. The wire answers with its counts, once it obeys."""
        with self._lock:
            self._weather = replace(self._weather, **changed)
            if self._control is not None:
                self._counts = Counts(**exchanged(self._control, asdict(self._weather)))
            return self._counts


class Way:
    """One direction: what is under way, in order."""

    def __init__(self, source: int, sink: int, chance: random.Random) -> None:
        self.source = source
        self.sink = sink
        self.chance = chance
        self.flying: deque[tuple[float, bytes]] = deque()

    def take(self, weather: Weather, now: float) -> int:
        """Send off a burst of what was sent; how many of it were dropped."""
        due = now + weather.delay_ms / 1e3
        dropped = 0
        with suppress(BlockingIOError):
            for _ in range(BURST_PACKETS):
                packet = os.read(self.source, MTU)
                if weather.cut or self.chance.random() < weather.loss:
                    dropped += 1
                else:
                    self.flying.append((due, packet))
        return dropped

    def deliver(self, now: float) -> int:
        """Hand over what is due; how many."""
        carried = 0
        while self.flying and self.flying[0][0] <= now:
            os.write(self.sink, self.flying.popleft()[1])
            carried += 1
        return carried

    def sever(self) -> int:
        """Drop what is under way; how many."""
        dropped = len(self.flying)
        self.flying.clear()
        return dropped


class Carrier:
    """The wire's process: sleeps until a packet comes, one is due, or the weather changes."""

    def __init__(self, left: int, right: int, control: socket.socket, seed: str) -> None:
        self.ways = (
            Way(left, right, random.Random(f"{seed} to the right")),
            Way(right, left, random.Random(f"{seed} to the left")),
        )
        self.control = control
        self.weather = Weather()
        self.carried = 0
        self.dropped = 0

    def run(self) -> None:
        """Until the caller hangs up or dies."""
        watched = [self.control.fileno(), *(way.source for way in self.ways)]
        while True:
            # select, since poll and epoll sleep whole milliseconds
            ready, _, _ = select.select(watched, [], [], self.idle_s(time.monotonic()))
            if self.control.fileno() in ready and not self.obey():
                return
            for way in self.ways:
                if way.source in ready:
                    self.dropped += way.take(self.weather, time.monotonic())
                self.carried += way.deliver(time.monotonic())

    def idle_s(self, now: float) -> float | None:
        """Until the next packet is due; None while none is under way."""
        due = [way.flying[0][0] for way in self.ways if way.flying]
        return max(0.0, min(due) - now) if due else None

    def obey(self) -> bool:
        """Take the weather and answer with the counts; False once there is nobody to ask."""
        message = self.control.recv(4096)
        if not message:
            return False
        self.weather = Weather(**json.loads(message))
        if self.weather.cut:
            self.dropped += sum(way.sever() for way in self.ways)
        self.control.send(json.dumps(asdict(Counts(self.carried, self.dropped))).encode())
        return True


def main(left: str, right: str, control: str, seed: str) -> None:
    """The numbers are inherited file descriptors; select takes low ones only, hence the copies."""
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    with socket.socket(fileno=os.dup(int(control))) as line:
        Carrier(os.dup(int(left)), os.dup(int(right)), line, seed).run()


@contextmanager
def carrying(left: int, right: int, *, seed: int) -> Iterator[socket.socket]:
    """The wire's process and the line to it. Its own session keeps a Ctrl-C from it."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near:
        with far:
            given = [left, right, far.fileno()]
            argv = [sys.executable, "-I", "-S", __file__, *map(str, given), str(seed)]
            process = subprocess.Popen(argv, pass_fds=given, start_new_session=True)
        with process:
            try:
                near.settimeout(ANSWER_S)
                yield near
            finally:
                process.kill()


def exchanged(line: socket.socket, message: dict[str, Any]) -> dict[str, int]:
    """The wire's answer."""
    try:
        line.send(json.dumps(message).encode())
        answer = line.recv(4096)
    except OSError as error:
        raise LinkFailed(f"the wire does not answer: {error}") from error
    if not answer:
        raise LinkFailed("the wire has died")
    counts: dict[str, int] = json.loads(answer)
    return counts


@contextmanager
def furnished(host: Host) -> Iterator[int]:
    """The host's namespace with its devices; the open end of its wire, non-blocking."""
    with TUN.open("r+b", buffering=0) as end:
        try:
            name, device = host.namespace, outside_device(host.namespace)
            ip(
                f"netns add {name}",
                f"link set {attached(end.fileno())} netns {name} name wire",
                f"link add name {device} type veth peer name outside netns {name}",
                f"address add {host.caller_address}/30 dev {device}",
                f"link set {device} up",
            )
            ip(
                "link set lo up",
                "link set wire addrgenmode none",
                f"link set wire mtu {MTU} txqueuelen {QUEUE_PACKETS} up",
                f"address add {host.address}/30 dev wire",
                f"address add {host.outside_address}/30 dev outside",
                "link set outside up",
                namespace=name,
            )
            yield end.fileno()
        finally:
            remove(host.namespace)


def attached(tun: int) -> str:
    """The name of a new TUN device of bare IP packets, in our own namespace until it is moved."""
    os.set_blocking(tun, False)
    asked = struct.pack("16sH22x", b"wire%d", IFF_TUN | IFF_NO_PI)
    given: bytes = fcntl.ioctl(tun, TUNSETIFF, asked)
    return given[:16].rstrip(b"\0").decode()


def hosts(network: IPv4Network) -> tuple[Host, Host]:
    """Both ends in three networks of four: the wire, then a pair from the caller to each."""
    name = f"tristage-{os.getpid()}-{network.network_address.packed[2]}"
    at = [str(address) for address in network][:12]
    return (
        Host(f"{name}-left", address=at[1], outside_address=at[6], caller_address=at[5]),
        Host(f"{name}-right", address=at[2], outside_address=at[10], caller_address=at[9]),
    )


def outside_device(namespace: str) -> str:
    """The caller's end of the pair; device names end at 15 characters."""
    _, pid, number, side = namespace.split("-")
    return f"ts{pid}-{number}{side[0]}"


def free_network() -> IPv4Network:
    """One that the caller has no route into. A wider route does not count: ours are narrower."""
    routes = json.loads(run("ip", "-json", "-4", "route").stdout)
    used = [IPv4Network(route["dst"]) for route in routes if route["dst"] != "default"]
    for network in NETWORKS:
        if not any(network.supernet_of(other) for other in used):
            return network
    raise LinkFailed(f"all of {NETWORKS[0]} to {NETWORKS[-1]} is in use")


def sweep() -> None:
    """Remove what processes left that died before they could."""
    for path in NAMESPACES.glob("tristage-*"):
        ours = OURS.fullmatch(path.name)
        if ours and not Path("/proc", ours["pid"]).exists():
            remove(path.name)


def remove(namespace: str) -> None:
    """Whatever exists of it. A namespace lives on while something runs in it, so that is killed."""
    for pid in run("ip", "netns", "pids", namespace).stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    lines = f"link delete {outside_device(namespace)}\nnetns delete {namespace}\n"
    run("ip", "-force", "-batch", "-", given=lines)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Among all processes of the machine: two must not take the same network."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ip(*lines: str, namespace: str | None = None) -> None:
    """Run lines of iproute2."""
    where = ["-netns", namespace] if namespace else []
    done = run("ip", *where, "-batch", "-", given="\n".join(lines) + "\n")
    if done.returncode:
        raise LinkFailed(f"ip {' '.join(where)}: {done.stderr.strip()}")


def run(*argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """A program's answer; it may fail."""
    return subprocess.run(argv, input=given, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
