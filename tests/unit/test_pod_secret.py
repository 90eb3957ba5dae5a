"""A pod's certificates while the kubelet renews its Secret, over TLS and by its layout of files."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2

from deploy.access import access_of
from deploy.errors import ServerFailed, TlsUnfit
from deploy.pod.secret import TRUSTED, kept, tls_of
from deploy.readiness import Probe
from deploy.settings import Settings
from python_backends.access import Access
from tests.certificates import self_signed, signed
from tests.unit.fake_triton import Message, end, serving

NAME = "subjectAltName=DNS:tristage.example.org\n"


def renew(secret: Path, certificate: Path, **others: Path) -> None:
    """As the kubelet does: a new folder, and the link to the old one replaced."""
    folder = secret / f"..{certificate.stem}"
    folder.mkdir(parents=True)
    files = {"tls.crt": certificate, "tls.key": certificate.with_suffix(".key")}
    for name, source in files.items() | {f"{k}.crt": v for k, v in others.items()}.items():
        (folder / name).write_bytes(source.read_bytes())
        link = secret / name
        if not link.is_symlink():
            link.symlink_to(Path("..data") / name)
    data, fresh = secret / "..data", secret / "..fresh"
    old = data.resolve() if data.is_symlink() else None
    fresh.symlink_to(folder.name)
    fresh.rename(data)
    if old is not None:
        for file in old.iterdir():
            file.unlink()
        old.rmdir()


def access(copies: Path) -> Access:
    found = access_of(Settings(tls=tls_of(copies, asks_callers=False), admin_key=""))
    return replace(found, root=str(copies / TRUSTED))


def answers(request: object, context: object) -> Iterator[Message]:
    yield end(request)


def reaches(who: Access, certificate: Path) -> bool:
    """A server with this certificate, which has `<certificate>.key` beside it."""
    with serving(answers, certificate) as (_, address):
        probe = Probe(address, who)
        try:
            probe.ask(service_pb2.ModelInferRequest(model_name="m", id="1"), 2.0)
        except ServerFailed:
            return False
        finally:
            probe.close()
        return True


@pytest.fixture
def issued(tmp_path: Path) -> Path:
    """A folder with `old` and `new` of one authority and name, and strangers."""
    for authority in ("authority", "another"):
        self_signed(tmp_path, authority)
    signed(tmp_path, "authority", "old", NAME)
    signed(tmp_path, "authority", "new", NAME)
    signed(tmp_path, "authority", "misnamed", "subjectAltName=DNS:other.example.org\n")
    signed(tmp_path, "another", "foreign", NAME)
    return tmp_path


def test_pods_with_the_old_and_the_new_certificate_reach_each_other(issued: Path) -> None:
    secret = issued / "secret"
    old, new = issued / "old.pem", issued / "new.pem"
    renew(secret, old, ca=issued / "authority.pem")
    with kept(secret) as before:
        renew(secret, new, ca=issued / "authority.pem")
        with kept(secret) as after:
            reached = [
                reaches(access(copies), one) for copies in (before, after) for one in (old, new)
            ]
            assert reached == [True] * 4
            for stranger in ("misnamed", "foreign"):
                assert not reaches(access(after), issued / f"{stranger}.pem")


def test_without_its_authority_a_pod_stays_with_the_certificate_it_has(issued: Path) -> None:
    secret = issued / "secret"
    old, new = issued / "old.pem", issued / "new.pem"
    renew(secret, old)
    with kept(secret) as copies:
        renew(secret, new)
        assert reaches(access(copies), old)
        assert not reaches(access(copies), new)


def test_the_authority_of_the_servers_lets_no_caller_in(issued: Path) -> None:
    secret = issued / "secret"
    renew(secret, issued / "old.pem", ca=issued / "authority.pem", callers=issued / "another.pem")
    with kept(secret) as copies:
        trusted = tls_of(copies, asks_callers=True).trusted
    assert (issued / "another.pem").read_text() in trusted
    assert (issued / "authority.pem").read_text() not in trusted


def test_nobody_else_reads_the_copies_and_they_do_not_stay(issued: Path) -> None:
    secret = issued / "secret"
    renew(secret, issued / "old.pem")
    with kept(secret) as copies:
        assert copies.stat().st_mode & 0o077 == 0
        assert copies.is_relative_to("/dev/shm")
    assert not copies.exists()


def test_a_secret_without_its_key_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").touch()
    with pytest.raises(TlsUnfit, match=r"tls\.key: No such file"), kept(tmp_path):
        pass
