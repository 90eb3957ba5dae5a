"""How a server is reached: its admin key, and whose certificates do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.__main__ import main
from client.commands import DEFAULT_SAMPLE
from deploy.__main__ import _address_book, _parser, _settings
from deploy.access import OFF, VARIABLE, access_of, arguments, key_of
from deploy.errors import DeployError, EnvironmentUnfit, TlsUnfit
from deploy.launcher import Server
from deploy.plan import Plan
from deploy.settings import Ports, Settings
from deploy.tls import Tls
from python_backends.access import OPEN, Access
from tests.certificates import self_signed, signed
from tests.unit.fake_triton import message, serving, texts

KEY = "k" * 16


def tls(folder: Path, name: str, callers: Path | None = None) -> Tls:
    return Tls(folder / f"{name}.pem", folder / f"{name}.key", callers)


def test_every_server_gets_a_key_that_nobody_can_guess() -> None:
    one, other = key_of(None, {}), key_of(None, {})
    assert one != other
    assert len(one) >= 32


def test_a_key_is_given_by_settings_or_environment_or_switched_off() -> None:
    assert key_of(KEY, {VARIABLE: "x" * 16}) == KEY
    assert key_of(None, {VARIABLE: KEY}) == KEY
    assert key_of(None, {VARIABLE: OFF}) == ""
    assert key_of("", {VARIABLE: KEY}) == ""


@pytest.mark.parametrize("wrong", ["short", "with a blank in it", "comma,comma,comma,", KEY * 9])
def test_a_key_that_could_be_guessed_or_not_be_passed_on_is_refused(wrong: str) -> None:
    with pytest.raises(EnvironmentUnfit, match="letters, digits") as refused:
        key_of(wrong, {})
    assert wrong not in str(refused.value)


def test_what_could_harm_others_asks_for_the_key() -> None:
    grpc, http = arguments(KEY)
    for harmful in ("model-repository", "shared-memory", "trace", "logging"):
        assert harmful in grpc
        assert harmful in http
    assert "inference" not in grpc
    assert arguments("") == []


def test_access_travels_by_the_environment_and_is_not_shown() -> None:
    access = Access(KEY, "/root.pem", "voice.example.org", "/root.pem", "/key.pem")
    assert Access.of_environment(access.environment()) == access
    assert Access.of_environment({}) == OPEN
    assert access.metadata == (("triton-grpc-protocol-tristage-admin", KEY),)
    assert OPEN.metadata == ()
    assert KEY not in repr(access)
    assert KEY not in str(access.tls)
    assert Access(KEY, **access.tls) == access


def test_what_an_outer_server_had_is_not_inherited() -> None:
    """A stub that starts servers of its own, or a test under one."""
    outer = Access(KEY, "/root.pem", "name").environment()
    assert Access.of_environment({**outer, **OPEN.environment()}) == OPEN


def test_a_certificate_says_by_which_name_it_is_dialled(tmp_path: Path) -> None:
    self_signed(tmp_path, "one", "DNS:voice.example.org,IP:10.0.0.1")
    self_signed(tmp_path, "ip", "IP:127.0.0.1")
    self_signed(tmp_path, "wild", "DNS:*.example.org")
    assert tls(tmp_path, "one").name() == "voice.example.org"
    assert tls(tmp_path, "ip").name() == "127.0.0.1"
    assert tls(tmp_path, "wild").name() == "server.example.org"
    access = access_of(Settings(tls=tls(tmp_path, "one"), admin_key=""))
    assert access == Access("", str(tmp_path / "one.pem"), "voice.example.org")


def test_our_own_connections_show_a_certificate_where_callers_must(tmp_path: Path) -> None:
    authority = self_signed(tmp_path, "authority")
    self_signed(tmp_path, "one")
    found = access_of(Settings(tls=tls(tmp_path, "one", authority)))
    assert found.certificate == found.root == str(tmp_path / "one.pem")
    assert found.key == str(tmp_path / "one.key")


def test_certificates_that_cannot_serve_are_refused_with_the_reason(tmp_path: Path) -> None:
    authority = self_signed(tmp_path, "authority")
    signed(
        tmp_path,
        "authority",
        "server-only",
        "subjectAltName=DNS:a\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n",
    )
    assert tls(tmp_path, "server-only").name() == "a"
    with pytest.raises(TlsUnfit, match="clientAuth"):
        tls(tmp_path, "server-only", authority).name()
    with pytest.raises(TlsUnfit, match="MISMATCH"):
        Tls(authority, tmp_path / "server-only.key").name()
    self_signed(tmp_path, "nameless", "")
    with pytest.raises(TlsUnfit, match="names no server"):
        tls(tmp_path, "nameless").name()
    with pytest.raises(TlsUnfit, match=r"missing\.pem: No such file"):
        Tls(tmp_path / "missing.pem", tmp_path / "authority.key").name()
    (tmp_path / "empty.pem").touch()
    with pytest.raises(TlsUnfit, match=r"empty\.pem"):
        Tls(tmp_path / "empty.pem", tmp_path / "authority.key").name()
    assert issubclass(TlsUnfit, DeployError)


def test_http_is_never_plaintext_for_others_where_grpc_is_tls(tmp_path: Path) -> None:
    plain = Settings(host="10.0.0.2", ports=Ports(1, 2, 3))
    assert {plain.host_of(purpose) for purpose in ("http", "grpc", "metrics")} == {"10.0.0.2"}
    secure = Settings(host="10.0.0.2", tls=tls(tmp_path, "one"))
    assert secure.host_of("http") == "127.0.0.1"
    assert secure.host_of("grpc") == secure.host_of("metrics") == "10.0.0.2"


def test_a_server_listens_on_loopback_unless_told_otherwise() -> None:
    assert Settings().host == "127.0.0.1"
    assert Plan.model_validate({"front": "a", "servers": {"a": {}}}).servers["a"].host == (
        "127.0.0.1"
    )


def test_certificates_of_a_plan_lie_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deployment.yaml"
    path.write_text("front: a\nservers: {a: {}}\ntls: {certificate: c.pem, key: /k/key.pem}\n")
    assert Plan.read(path).tls_files() == Tls(tmp_path / "c.pem", Path("/k/key.pem"))


def heard(request: Any, context: Any) -> Iterator[Any]:
    yield message(request, HEARD=texts("two burgers"), STATUS=texts("stop"))


def settings_of(*words: str) -> Settings:
    return _settings(_parser().parse_args(["serve", *words]))


def test_the_command_line_takes_certificates_and_an_address() -> None:
    assert settings_of() == Settings(overrides={})
    secure = settings_of("--host", "0.0.0.0", "--tls-cert", "c", "--tls-key", "k", "--tls-ca", "a")
    assert secure.tls == Tls(Path("c"), Path("k"), Path("a"))
    assert secure.host_of("grpc") == "0.0.0.0"
    for half in (("--tls-cert", "c"), ("--tls-ca", "a"), ("--tls-key", "k", "--tls-ca", "a")):
        with pytest.raises(TlsUnfit, match="both"):
            settings_of(*half)


def test_who_starts_a_server_is_told_who_may_listen(tmp_path: Path) -> None:
    self_signed(tmp_path, "one")
    quiet = _address_book(Server(Settings(ports=Ports(1, 2, 3))))
    assert "plaintext" not in quiet
    open_wide = _address_book(Server(Settings(host="0.0.0.0", ports=Ports(1, 2, 3))))
    assert "gRPC     127.0.0.1:2  in plaintext" in open_wide
    secure = Server(Settings(host="0.0.0.0", ports=Ports(1, 2, 3), tls=tls(tmp_path, "one")))
    assert "TLS, as localhost" in _address_book(secure)
    assert f'ssl=True, root_certificates="{tmp_path}/one.pem"' in _address_book(secure)
    assert secure.access.admin_key not in _address_book(secure)


def test_the_client_s_command_line_speaks_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = self_signed(tmp_path, "one")
    with serving(heard, certificate) as (_, address):
        words = ["transcribe", str(DEFAULT_SAMPLE), "--server", address, "--timeout-s", "5"]
        assert main([*words, "--tls-ca", str(certificate)]) == 0
        assert main(words) == 1
        assert main([*words, "--tls"]) == 1
        assert main([*words, "--tls-ca", str(tmp_path / "none.pem")]) == 1
    assert "none.pem" in capsys.readouterr().err
