"""Figures that a server tells of itself on /metrics."""

import re
import urllib.request

from deploy.errors import ServerFailed

OPEN_REQUESTS = re.compile(
    r'^tristage_open_requests\{[^}]*\bstage="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE
)


REMOTE_TURNS = re.compile(
    r'^tristage_remote_turns\{[^}]*\breplica="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE
)


def remote_turns(metrics: str) -> dict[str, int]:
    """Replica -> turns that a server's proxies have there and that are not over."""
    found: dict[str, int] = {}
    for replica, value in REMOTE_TURNS.findall(metrics):
        found[replica] = found.get(replica, 0) + round(float(value))
    return found


def open_requests(metrics: str) -> dict[str, int]:
    """Stage -> requests it has accepted and not answered to the end, from the text of /metrics."""
    found: dict[str, int] = {}
    for stage, value in OPEN_REQUESTS.findall(metrics):
        found[stage] = found.get(stage, 0) + round(float(value))
    return found


def read_metrics(address: str, timeout_s: float = 1.0) -> str:
    """The text of /metrics; ServerFailed when the server does not tell."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=timeout_s) as answer:
            return str(answer.read().decode())
    except OSError as fault:
        raise ServerFailed(f"no metrics at {address}: {fault}") from fault
