"""Triton model class of live calls."""

from functools import partial

from python_backends.bridge import ModelConfig
from python_backends.listening.backend import CallsBackend
from python_backends.listening.loop import Calls
from python_backends.live_call.conversation import Conversation
from python_backends.live_call.settings import LiveSettings


class TritonPythonModel(CallsBackend):
    """Answers what was said."""

    def make_calls(self, config: ModelConfig, address: str) -> Calls:
        """See CallsBackend."""
        settings = config.settings(LiveSettings)
        make_call = partial(Conversation, settings=settings)
        return Calls(settings, address, make_call=make_call, meters=self.meters)
