"""The command line of a tritonserver."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from deploy import access, leash
from deploy.backends import Triton
from deploy.settings import LISTENERS, Ports, Settings
from deploy.tls import Tls

CALLERS = "callers.pem"
"""In the folder of a run: whose certificates are accepted."""


def server_command(
    settings: Settings,
    ports: Ports,
    models: Iterable[str],
    views: Iterable[Path],
    backends: Path,
    run: Path,
    prefix: str,
    key: str,
) -> list[str]:
    """tritonserver with `models` from the repositories `views`, by the backends in the folder
    `backends`. In the folder `run` lies whose certificates it accepts. `key`: of the APIs that are
    not for callers.
    """
    server = Triton.found()
    command = [
        str(server.binary),
        *(f"--model-repository={view}" for view in views),
        f"--backend-directory={backends}",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        f"--cache-directory={server.folder / 'caches'}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in models),
        "--disable-auto-complete-config",
        "--allow-gpu-metrics=false",
        f"--exit-timeout-secs={settings.exit_timeout_s}",
    ]
    for purpose in LISTENERS:
        command.append(f"--{purpose}-address={settings.host_of(purpose)}")
        command.append(f"--{purpose}-port={getattr(ports, purpose)}")
    if settings.config_name:
        command.append(f"--model-config-name={settings.config_name}")
    if settings.tls is not None:
        command += _tls(settings.tls, run / CALLERS)
    return [*command, *access.arguments(key), *settings.arguments]


def _tls(tls: Tls, callers: Path) -> list[str]:
    pair = [f"--grpc-server-cert={tls.certificate}", f"--grpc-server-key={tls.key}"]
    if tls.callers is None:
        return ["--grpc-use-ssl=true", *pair]
    return ["--grpc-use-ssl-mutual=true", *pair, f"--grpc-root-cert={callers}"]


def leashed(command: Sequence[str], settings: Settings) -> list[str]:
    """The command as one that ends with this process, on the cores of `settings`."""
    cores = ",".join(str(core) for core in sorted(settings.cores)) or "all"
    return leash.command(command, cores)
