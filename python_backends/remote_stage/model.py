"""Triton model class of a stage that is served elsewhere."""

from python_backends.bridge import Loop, ModelConfig, StageBackend, log_warning
from python_backends.remote_stage.loop import RemoteLoop
from python_backends.remote_stage.placement import source_of
from python_backends.remote_stage.settings import RemoteSettings


class TritonPythonModel(StageBackend):
    """Loaded by Triton under the stage's own name."""

    def make_loop(self, config: ModelConfig) -> Loop:
        """The loop that relays to wherever the placement file, or DNS, says."""
        settings = config.settings(RemoteSettings)
        source = source_of(config.name, lambda what: log_warning(f"{config.name}: {what}"))
        return RemoteLoop(config.name, config.inputs, settings, source, self.meters)
