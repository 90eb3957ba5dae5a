"""Triton model class of live listening."""

from python_backends.bridge import ModelConfig
from python_backends.listening.backend import CallsBackend
from python_backends.listening.loop import Calls
from python_backends.listening.settings import ListenSettings


class TritonPythonModel(CallsBackend):
    """Tells what was said."""

    def make_calls(self, config: ModelConfig, address: str) -> Calls:
        """See CallsBackend."""
        return Calls(config.settings(ListenSettings), address, meters=self.meters)
