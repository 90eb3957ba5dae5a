"""Run a load and leave its folder behind.

::

    folder = run(RunSpec(name="stages-64", target="stages", model="emu_turn", people=64), address)
"""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from loadtest.load import folder as folders
from loadtest.load.errors import GeneratorFailed
from loadtest.load.spec import ROOT, RunSpec

STOP_S = 5.0
LOG_LINES = 15


def run(spec: RunSpec, address: str, progress: Progress | None = None) -> Path:
    """Put the load of `spec` on the server at `address` (gRPC); the folder of the finished run.

    A bar is drawn on stderr, or added to `progress`. Raises GeneratorFailed when the generator
    broke; failed turns and a late generator are results, written in the folder.
    """
    folder = folders.prepare(spec)
    with bars() if progress is None else nullcontext(progress) as shown:
        _generate(spec, folder, address, shown)
    folders.complete(spec, folder)
    return folder


def bars() -> Progress:
    """Progress bars that `run` can share."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def describe(spec: RunSpec) -> str:
    """The run in a few words, saying whether it is emulated."""
    device = " (emulated device)" if spec.emulated else ""
    if spec.trace is not None:
        load = f"trace {spec.trace.name}"
    elif spec.rate is not None:
        load = f"{spec.rate:g} turns/s"
    else:
        load = f"{spec.people} people" + (" on the line" if spec.live else "")
    return f"{spec.name}: {load}{device}"


def _generate(spec: RunSpec, folder: Path, address: str, shown: Progress) -> None:
    """One generator process, from start to a clean end; it goes when we are interrupted."""
    total_s = spec.warm_up_s + spec.seconds
    task = shown.add_task(describe(spec), total=total_s, told="starting")
    command = [sys.executable, "-m", "loadtest.load.generator", str(folder), address]
    with (folder / folders.LOG).open("wb") as log:
        generator = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert generator.stdout is not None
        for line in generator.stdout:
            at_s, told = _read(line)
            shown.update(task, completed=min(at_s, total_s), told=told)
        code = generator.wait()
    finally:
        _end(generator)
    if code:
        raise GeneratorFailed(_account(folder / folders.LOG, code))


def _read(line: bytes) -> tuple[float, str]:
    """Seconds since the start, and what to show."""
    told = json.loads(line)
    counts = f"{told['ok']} ok, {told['failed']} failed, {told['open']} open"
    return told["at_s"], f"{told['phase']}: {counts}"


def _end(generator: subprocess.Popen[bytes]) -> None:
    if generator.stdout is not None:
        generator.stdout.close()
    if generator.poll() is not None:
        return
    generator.terminate()
    try:
        generator.wait(STOP_S)
    except subprocess.TimeoutExpired:
        generator.kill()
        generator.wait()


def _account(log: Path, code: int) -> str:
    last = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    return f"the load generator ended with code {code}; {log} ends with:\n{last}"
