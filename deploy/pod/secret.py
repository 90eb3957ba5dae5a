"""The certificates of a pod, as they were when it started.

The kubelet changes the files of a Secret under a server that has read them once: half of a pod
would have the old certificate, and half the new one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.errors import TlsUnfit
from deploy.processes import SHARED_MEMORY
from deploy.tls import Tls

CERTIFICATE, KEY = "tls.crt", "tls.key"
"""Files of a Secret of type kubernetes.io/tls."""

AUTHORITY: Final = "ca.crt"
"""Who has issued the certificate: cert-manager writes it there. Nobody is let in by it."""

CALLERS: Final = "callers.crt"
"""Who signs the certificates of callers, where the plan asks for these."""

TRUSTED: Final = "trusted.crt"
"""Of the copies: whom connections between pods trust."""


@contextmanager
def kept(folder: Path) -> Iterator[Path]:
    """A folder with copies of a Secret's files, in memory only, while the block runs. TlsUnfit when
    one cannot be read."""
    with TemporaryDirectory(prefix="tristage-tls-", dir=SHARED_MEMORY) as made:
        copies = Path(made)
        for name in (CERTIFICATE, KEY):
            (copies / name).write_bytes(_read(folder / name))
        if (folder / CALLERS).exists():
            (copies / CALLERS).write_bytes(_read(folder / CALLERS))
        (copies / TRUSTED).write_bytes(_trusted(folder))
        yield copies


def tls_of(folder: Path, *, asks_callers: bool) -> Tls:
    """Of a folder with a Secret's files. TlsUnfit when the plan asks callers for certificates, and
    nothing says who signs them: everybody would be let in."""
    callers = folder / CALLERS if asks_callers else None
    if callers is not None and not callers.exists():
        raise TlsUnfit(
            f"{CALLERS} is missing beside {CERTIFICATE}: the plan has tls.callers, so it has to "
            "hold who signs the certificates of callers (PEM)"
        )
    return Tls(folder / CERTIFICATE, folder / KEY, callers)


def _trusted(folder: Path) -> bytes:
    """The certificate itself and, where it is known, who has issued it, so that pods with its
    successor, or its predecessor, are trusted as well."""
    issuer = _read(folder / AUTHORITY) if (folder / AUTHORITY).exists() else b""
    return _read(folder / CERTIFICATE) + b"\n" + issuer


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as fault:
        raise TlsUnfit(f"{path}: {fault.strerror}") from fault
