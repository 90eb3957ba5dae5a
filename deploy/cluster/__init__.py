"""Several servers as one deployment."""

from deploy.cluster.cluster import Cluster
from deploy.cluster.events import Event

__all__ = ["Cluster", "Event"]
