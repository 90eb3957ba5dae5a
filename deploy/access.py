"""How a server is reached: over TLS or not, and with the key to what it keeps from callers.

Whoever may register shared memory reads and overwrites what others send; whoever may load models
runs code. So these APIs answer only to requests that bear the key.
"""

import os
import re
import secrets
from collections.abc import Mapping

from deploy.errors import EnvironmentUnfit
from deploy.settings import Settings
from python_backends.access import ADMIN_HEADER, Access

VARIABLE = "TRISTAGE_ADMIN_KEY"
OFF = "off"
"""Value of VARIABLE that leaves everything open."""

RESTRICTED = ("model-repository", "shared-memory", "trace", "logging")
"""Of the server's APIs. What only tells (health, metadata, model-config, statistics) stays open:
tools of others need it, and it holds nothing of a caller's."""

_KEY = re.compile("[A-Za-z0-9_-]{16,128}")


def key_of(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The key of a server: the `given` one, that of the environment, or a new one; "" for none.

    EnvironmentUnfit when it is one that could be guessed, or not be passed on.
    """
    if given is None:
        given = environment.get(VARIABLE) or secrets.token_hex(16)
        given = "" if given == OFF else given
    if given and not _KEY.fullmatch(given):
        raise EnvironmentUnfit(
            f"{VARIABLE}: 16 to 128 letters, digits, _ or - are accepted, or {OFF!r} for no key"
        )
    return given


def arguments(key: str) -> list[str]:
    """For tritonserver, which takes the key by its command line only (2.51)."""
    if not key:
        return []
    what = f"{','.join(RESTRICTED)}:{ADMIN_HEADER}={key}"
    return [f"--grpc-restricted-protocol={what}", f"--http-restricted-api={what}"]


def access_of(settings: Settings) -> Access:
    """How a server with these settings is reached. TlsUnfit, or EnvironmentUnfit for its key."""
    key, tls = key_of(settings.admin_key), settings.tls
    if tls is None:
        return Access(key)
    root, name = str(tls.certificate.resolve()), tls.name()
    shown = (root, str(tls.key.resolve())) if tls.callers else ("", "")
    return Access(key, root, name, *shown)
