"""Where a loop's step engine runs."""

from python_backends.ar_loop.sequence import Call
from python_backends.slot_engine.command import (
    OUTPUTS,
    Command,
    Result,
    from_outputs,
    to_inputs,
)


class BlsEngine:
    """A slot_engine model of this server, one command in flight."""

    def __init__(self, model: str, call: Call, width: int) -> None:
        self._model = model
        self._call = call
        self._width = width

    def run(self, command: Command) -> Result:
        """See StepEngine."""
        outputs = self._call(self._model, to_inputs(command), OUTPUTS)
        return from_outputs(outputs, command, self._width)
