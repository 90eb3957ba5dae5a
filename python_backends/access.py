"""How servers of one deployment reach each other, and how who started them reaches them.

The launcher hands it to the stubs of a server by environment variables: never on a command line,
which everybody on the machine may read.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

ADMIN_HEADER: Final = "tristage-admin"
"""HTTP header that opens the restricted APIs of a server; over gRPC it is prefixed."""

_GRPC_HEADER: Final = f"triton-grpc-protocol-{ADMIN_HEADER}"
_VARIABLES: Final = {
    "admin_key": "TRISTAGE_ADMIN_KEY",
    "root": "TRISTAGE_TLS_ROOT",
    "name": "TRISTAGE_TLS_NAME",
    "certificate": "TRISTAGE_TLS_CERTIFICATE",
    "key": "TRISTAGE_TLS_KEY",
}

Options = Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Access:
    """What a connection to one of our servers trusts and shows; PEM files by their paths.

    `root`: the certificate that is trusted; empty: no TLS. `name`: what that certificate calls the
    server, whatever address it is dialled by. `certificate`, `key`: what is shown to a server that
    asks for one. `admin_key`: opens what the server keeps from callers; empty: nothing is kept.
    """

    admin_key: str = ""
    root: str = ""
    name: str = ""
    certificate: str = ""
    key: str = ""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> "Access":
        """As the launcher of this process has it."""
        return cls(**{field: environment.get(name, "") for field, name in _VARIABLES.items()})

    def environment(self) -> dict[str, str]:
        """All variables, those too that say that there is nothing."""
        return {name: getattr(self, field) for field, name in _VARIABLES.items()}

    @property
    def tls(self) -> dict[str, str]:
        """Its fields but for the admin key, for files that more people may read."""
        return {name: value for name, value in vars(self).items() if name != "admin_key"}

    def __repr__(self) -> str:
        """Without the admin key, which would end up in logs."""
        return f"Access(root={self.root!r}, name={self.name!r}, certificate={self.certificate!r})"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Of a gRPC call that callers may not make."""
        return ((_GRPC_HEADER, self.admin_key),) if self.admin_key else ()

    def dial(self, address: str, options: Options) -> grpc.Channel:
        """A channel to a server. OSError when a certificate cannot be read."""
        if not self.root:
            return grpc.insecure_channel(address, options=list(options))
        return grpc.secure_channel(address, self._credentials(), options=self._named(options))

    def dial_async(self, address: str, options: Options) -> grpc.aio.Channel:
        """A channel for the running event loop. OSError when a certificate cannot be read."""
        if not self.root:
            return grpc.aio.insecure_channel(address, options=list(options))
        return grpc.aio.secure_channel(address, self._credentials(), options=self._named(options))

    def _credentials(self) -> Any:
        return credentials(self.root, self.certificate, self.key)

    def _named(self, options: Options) -> list[tuple[str, Any]]:
        return [*options, ("grpc.ssl_target_name_override", self.name)]


OPEN: Final = Access()
"""Plaintext, and nothing kept from callers."""


def credentials(
    root: str | Path = "", certificate: str | Path = "", key: str | Path = ""
) -> grpc.ChannelCredentials:
    """Of a TLS connection, from PEM files: whom it trusts (empty: whom the system trusts) and what
    it shows to a server that asks for a certificate. OSError when one cannot be read."""
    found = [Path(one).read_bytes() if one else None for one in (root, key, certificate)]
    return grpc.ssl_channel_credentials(*found)
