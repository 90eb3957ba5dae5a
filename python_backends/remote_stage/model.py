"""Triton model class of a stage that is served elsewhere."""

from python_backends.bridge import Loop, ModelConfig, StageBackend
from python_backends.remote_stage.loop import RemoteLoop
from python_backends.remote_stage.placement import Placement
from python_backends.remote_stage.settings import RemoteSettings


class TritonPythonModel(StageBackend):
    """Loaded by Triton under the stage's own name."""

    def make_loop(self, config: ModelConfig) -> Loop:
        """The loop that relays to wherever the placement file says."""
        settings = config.settings(RemoteSettings)
        placement = Placement.named(config.name)
        return RemoteLoop(config.name, config.inputs, settings, placement, self.meters)
