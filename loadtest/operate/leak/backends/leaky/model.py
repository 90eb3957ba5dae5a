"""Triton model class of a stage with a leak, for alerts to find."""

from python_backends.bridge import Arrived, Closed, Inbox, ModelConfig, StageBackend

LOST_SAMPLES = 1000


class Leaky:
    """Forgets large requests, and answers all others at once."""

    def run(self, inbox: Inbox) -> None:
        """See Loop."""
        while True:
            for event in inbox.take(None):
                match event:
                    case Closed():
                        return
                    case Arrived(request) if request.required("AUDIO").size < LOST_SAMPLES:
                        request.finish()
                    case _:
                        pass


class TritonPythonModel(StageBackend):
    """Loaded by Triton."""

    def make_loop(self, config: ModelConfig) -> Leaky:
        """The loop."""
        return Leaky()
