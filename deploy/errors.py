"""What can go wrong around a server.

* DeployError
  x EnvironmentUnfit  this environment cannot run the server; the message says what brings it
  x PortBusy          somebody else listens on a port that was asked for
  x PlanError         a deployment plan cannot be read, or cannot work; one reason a line
  x RepositoryError   a model repository, a model's name or an override is wrong
  x BytesUnfit        what models declare is more than there is; every one's bytes are named
  x TlsUnfit          certificates are missing, broken, or do not fit
  x ServerFailed      the server ended, or a model did not answer its first inference
  x UpgradeRefused    a version of a stage cannot be brought in; nothing was loaded
  x UpgradeFailed     a version was brought in and did not do: the one before serves
"""


class DeployError(RuntimeError):
    """A failure outside any request; its message is for a person."""


class EnvironmentUnfit(DeployError):
    """Something this environment lacks; the message holds the command that brings it."""


class PortBusy(DeployError):
    """A port that was asked for is taken."""


class PlanError(DeployError):
    """A deployment plan cannot be read, or cannot work; one reason a line."""


class RepositoryError(DeployError):
    """A model repository or what was asked of it makes no sense."""


class BytesUnfit(DeployError):
    """The bytes that models declare, and that they do not fit."""


class TlsUnfit(DeployError):
    """Certificates that a server cannot be reached with."""


class UpgradeRefused(DeployError):
    """A version of a stage that cannot be brought in; nothing was loaded."""


class UpgradeFailed(DeployError):
    """A version that was brought in and did not do; the one before it serves."""


class ServerFailed(DeployError):
    """The server did not come up, or a model of it does not answer."""
