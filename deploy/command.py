"""The command line of a tritonserver."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from deploy import backends, leash
from deploy.settings import LISTENERS, Ports, Settings


def server_command(
    settings: Settings,
    ports: Ports,
    models: Iterable[str],
    views: Iterable[Path],
    directory: Path,
    prefix: str,
) -> list[str]:
    """tritonserver with `models` from the repositories `views` and the backends in `directory`."""
    server = backends.tritonserver()
    command = [
        str(server / "bin" / "tritonserver"),
        *(f"--model-repository={view}" for view in views),
        f"--backend-directory={directory}",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        f"--cache-directory={server / 'caches'}",
        "--model-control-mode=explicit",
        *(f"--load-model={name}" for name in models),
        "--disable-auto-complete-config",
        "--allow-gpu-metrics=false",
        f"--exit-timeout-secs={settings.exit_timeout_s}",
    ]
    for purpose in LISTENERS:
        command.append(f"--{purpose}-address={settings.host}")
        command.append(f"--{purpose}-port={getattr(ports, purpose)}")
    if settings.config_name:
        command.append(f"--model-config-name={settings.config_name}")
    return [*command, *settings.arguments]


def leashed(command: Sequence[str], settings: Settings) -> list[str]:
    """The command as one that ends with this process, on the cores of `settings`."""
    cores = ",".join(str(core) for core in sorted(settings.cores)) or "all"
    start = [sys.executable, "-I", "-S", str(leash.__file__), str(os.getpid()), cores]
    return [*start, *command]
