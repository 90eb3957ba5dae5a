"""Stand-in for the native tensorrt backend, for a server that lacks it on a machine with a GPU.

Serves the same configs/tensorrt.pbtxt. Unverified on a GPU: it was tried with a fake TensorRT on a
CPU. Never copied to a stock image, where it would shadow the real one.
"""

from __future__ import annotations  # the stub has no native classes yet while this is imported

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploy.standins.shared.serving import StandIn, require_numpy
    from deploy.standins.tensorrt.engine_graph import EngineGraph, device_of
else:
    from engine_graph import EngineGraph, device_of
    from serving import StandIn, require_numpy


class TritonPythonModel(StandIn):
    """Called by the server's Python stub."""

    label = "tensorrt"

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the engine for this GPU. Whatever is wrong with it fails the load, with a reason."""
        require_numpy()
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"], args["model_version"])
        graph = EngineGraph(folder, config, device_of(args, config))
        self.open(config, graph.run)
