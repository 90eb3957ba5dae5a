"""Figures of a stage on Triton's /metrics."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class OpenRequests:
    """`tristage_open_requests{stage=...}`: requests accepted and not yet answered to the end.

    Zero on an idle server; what stays above is a leak.
    """

    def __init__(self, stage: str) -> None:
        family = pb_utils.MetricFamily(
            name="tristage_open_requests",
            description="Requests a stage has accepted and not yet answered to the end",
            kind=pb_utils.MetricFamily.GAUGE,
        )
        self._family: pb_utils.MetricFamily | None = family
        self._metric: pb_utils.Metric | None = family.Metric(labels={"stage": stage})

    def set(self, count: int) -> None:
        """Publish the present number."""
        if self._metric is not None:
            self._metric.set(float(count))

    def close(self) -> None:
        """Give both up while the stub still serves, the metric first: its exit would crash."""
        self._metric = None
        self._family = None
