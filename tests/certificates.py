"""Certificates for tests, made by openssl: of a server, and of an authority and a caller it let
in."""

import subprocess
from pathlib import Path

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def self_signed(folder: Path, name: str, names: str = "DNS:localhost,IP:127.0.0.1") -> Path:
    """<folder>/<name>.pem, beside its <name>.key; `names` is its subjectAltName."""
    extra = ("-addext", f"subjectAltName={names}") if names else ()
    _openssl("req", "-x509", *KEY, *_files(folder, name), "-subj", f"/CN={name}", *extra)
    return folder / f"{name}.pem"


def signed(folder: Path, authority: str, name: str, extensions: str = "") -> Path:
    """<folder>/<name>.pem, signed by an authority that `self_signed` made; beside its key."""
    request, settings = folder / f"{name}.csr", folder / f"{name}.ext"
    settings.write_text(extensions)
    _openssl(
        *("req", *KEY, "-keyout", folder / f"{name}.key", "-out", request, "-subj", f"/CN={name}")
    )
    _openssl(
        *("x509", "-req", "-in", request, "-out", folder / f"{name}.pem", "-days", "2"),
        *("-CA", folder / f"{authority}.pem", "-CAkey", folder / f"{authority}.key"),
        *("-CAcreateserial", "-extfile", settings),
    )
    return folder / f"{name}.pem"


def _files(folder: Path, name: str) -> tuple[object, ...]:
    return "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"


def _openssl(*arguments: object) -> None:
    command = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
