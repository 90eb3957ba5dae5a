"""How `up` tells of its servers: to a person, or to a machine."""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

from deploy.cluster.cluster import Cluster
from deploy.cluster.events import Event
from deploy.cluster.roster import Hear, Progress
from deploy.errors import DeployError
from deploy.json_log import JsonLog, following_all
from deploy.progress import Line
from deploy.telling import JSON, addresses


class Text:
    """Tells a person; `ready` makes what is said of a cluster that serves."""

    hear: Hear | None = None
    """What happens is told as progress."""

    def __init__(self, ready: Callable[[Cluster], str]) -> None:
        self.progress: Progress = Line()
        self._ready = ready

    def ready(self, cluster: Cluster) -> None:
        """The cluster serves."""
        print(self._ready(cluster), flush=True)

    def beside(self, cluster: Cluster) -> AbstractContextManager[None]:
        """What is told meanwhile, while the block runs."""
        return nullcontext()

    def stopped(self) -> None:
        """It has ended."""
        print("\nstopped")


class Json:
    """Tells a machine: every line is a JSON object, those of all servers and stages as well."""

    def __init__(self) -> None:
        self._log = JsonLog()
        self.progress: Progress = self._log
        self.hear: Hear | None = self._heard

    def ready(self, cluster: Cluster) -> None:
        """See Text."""
        front = ""
        with suppress(DeployError):
            front = f"{addresses(cluster.front)}; "
        self._log.told("serving", f"{front}{len(cluster.servers)} servers")

    def beside(self, cluster: Cluster) -> AbstractContextManager[None]:
        """See Text."""
        return following_all(lambda: cluster.servers, self._log.write)

    def stopped(self) -> None:
        """See Text."""
        self._log.told("stopped", "stopped")

    def _heard(self, event: Event) -> None:
        self._log.told(event.kind, event.what, server=event.server)


def telling(options: argparse.Namespace, ready: Callable[[Cluster], str]) -> Text | Json:
    """As `--log-format` asks."""
    return Json() if options.log_format == JSON else Text(ready)
