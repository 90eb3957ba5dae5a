"""Everything the offline build raises on purpose.

* BuildError
  x FetchFailed     a pinned package could not be had, or is not what was pinned
  x WeightsInvalid  a weights file does not hold what its reader expects
  x CheckpointUnfit a checkpoint that was brought lacks something, or is of a kind we do not know
  x ContractBroken  an exported graph does not match its config.pbtxt, or the servers cannot run it
  x EngineRefused   a TensorRT engine cannot be built as meant, or is not what is needed now
"""


class BuildError(RuntimeError):
    """The build stops here; the message is for the person who ran it."""


class FetchFailed(BuildError):
    """A pinned package could not be downloaded, or its bytes are not the pinned ones."""


class WeightsInvalid(BuildError):
    """A weights file is damaged or of another layout than the reader knows."""


class CheckpointUnfit(BuildError):
    """A user's checkpoint cannot be read or is not supported; the message says what is."""


class ContractBroken(BuildError):
    """An exported graph differs from what its config.pbtxt, or the native servers, require."""


class EngineRefused(BuildError):
    """A TensorRT engine would not compute what its graph says, or is stale, damaged or missing."""
