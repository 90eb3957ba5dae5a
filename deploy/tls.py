"""Certificates of a server: whether they can work, and what they call it."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import TlsUnfit

END = "-----END CERTIFICATE-----"
FLIGHTS = 4
"""Of a TLS 1.3 handshake, at most."""


@dataclass(frozen=True)
class Tls:
    """PEM files: the server's certificate (with those between it and its root) and its key.

    `callers`: who signs the certificates of callers; with it nobody else is let in.
    """

    certificate: Path
    key: Path
    callers: Path | None = None

    @property
    def trusted(self) -> str:
        """PEM text of whom is let in: whoever `callers` has signed; and our own connections, which
        show the server's own certificate. Of its file that one alone: what stands behind it has
        signed others, too."""
        assert self.callers is not None
        own, end, _ = self.certificate.read_text().partition(END)
        return f"{self.callers.read_text()}\n{own}{end}\n"

    def name(self) -> str:
        """What the certificate calls the server. TlsUnfit when the files cannot serve: one that
        cannot be read, a key of another certificate, one that has expired, one without a name; and
        with `callers` one that may not be shown by a client, as our own connections do.
        """
        try:
            return _name(self._rehearse())
        except ssl.SSLError as fault:
            raise TlsUnfit(f"{self.certificate}, {self.key}: {_told(fault)}") from fault
        except OSError as fault:
            raise TlsUnfit(f"{fault.filename or self.certificate}: {fault.strerror}") from fault

    def _rehearse(self) -> dict[str, object]:
        """The certificate, after a handshake in memory with ourselves."""
        for path in filter(None, (self.certificate, self.key, self.callers)):
            path.read_bytes()  # whose OSError names the file; that of ssl does not
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(self.certificate, self.key, password="")
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.load_verify_locations(self.certificate)
        if self.callers is not None:
            server.verify_mode = ssl.CERT_REQUIRED
            server.load_verify_locations(cadata=self.trusted)
            client.load_cert_chain(self.certificate, self.key, password="")
        for context in (server, client):
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        one = client.wrap_bio(to_client, to_server)
        other = server.wrap_bio(to_server, to_client, server_side=True)
        for end in (one, other) * FLIGHTS:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
        return dict(one.getpeercert() or {})


def _name(certificate: dict[str, object]) -> str:
    """The first of its names; of "*.example.org" one that it stands for."""
    names = certificate.get("subjectAltName", ())
    assert isinstance(names, tuple)
    for kind, name in names:
        if kind in ("DNS", "IP Address"):
            return str(name).replace("*", "server")
    raise TlsUnfit("the certificate names no server: it needs a subjectAltName, DNS or IP")


def _told(fault: ssl.SSLError) -> str:
    """OpenSSL's reason in words."""
    if "unsuitable certificate purpose" in str(fault):
        return (
            "the certificate is for servers only (extendedKeyUsage); where callers need one, our "
            "own connections show it too, so it has to allow clientAuth"
        )
    return str(getattr(fault, "verify_message", "") or fault.reason or fault)
