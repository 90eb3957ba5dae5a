"""What a plan does not say of a cluster."""

from dataclasses import dataclass
from typing import Final

from deploy.pod.command import DRAIN_S, SETTLE_S
from deploy.pod.health import START_S

IMAGE: Final = "tristage:0.1.0"
GPU_IMAGE: Final = "tristage-gpu:0.1.0"
"""Targets `cpu` and `gpu` of deploy/docker/Dockerfile."""

USER: Final = 10001
END_S: Final = 20
"""Beyond settling and draining: the server's own end."""


@dataclass(frozen=True)
class Options:
    """Of all groups alike; an overlay changes what is to differ."""

    image: str = IMAGE
    gpu_image: str = GPU_IMAGE
    most_replicas: int = 4
    queue_target_ms: int = 100
    """Mean time a request waits before anything is computed for it, that the autoscaler aims at."""

    busy_target_percent: int = 80
    """Share of a stage's places that are taken, that it aims at."""

    prometheus_namespace: str = "monitoring"
    drain_s: int = round(DRAIN_S)
    start_s: int = round(START_S)
    """That a server may take to start, the first time and when the launcher starts it again."""

    @property
    def grace_s(self) -> int:
        """terminationGracePeriodSeconds."""
        return round(SETTLE_S) + self.drain_s + END_S
