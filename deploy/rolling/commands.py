"""`python -m deploy upgrade|rollback|versions`: of a server that `serve` keeps."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from deploy.cluster.control import Control, ask
from deploy.errors import DeployError, UpgradeRefused
from deploy.launcher import Server
from deploy.processes import SHARED_MEMORY, start_time
from deploy.rolling.change import Tell, Terms
from deploy.rolling.upgrades import Upgrades

SERVING = "serving"
"""Below `out`: a file for each server that takes these orders, named by the pid of its keeper."""


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """The three commands beside the others."""
    parser = commands.add_parser("upgrade", help="bring another version of stages in, under load")
    parser.set_defaults(action=upgrade)
    parser.add_argument("stages", nargs="+", metavar="STAGE", help="several: all at once")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", type=int, metavar="VERSION", help="a version folder of the model")
    what.add_argument(
        "--from", type=Path, dest="folder", metavar="FOLDER", help="a repository with the model"
    )
    _add_terms(parser)
    parser = commands.add_parser("rollback", help="bring the version before back")
    parser.set_defaults(action=rollback)
    parser.add_argument("stage", metavar="STAGE")
    _add_terms(parser)
    parser = commands.add_parser("versions", help="of each stage, and which one serves")
    parser.set_defaults(action=versions)
    parser.add_argument("--server", type=int, metavar="PID", help="of `serve`, if several run")


def upgrade(options: argparse.Namespace) -> int:
    """Exit code 0 when the new versions serve."""
    folder = str(options.folder.resolve()) if options.folder else None
    given = {"stages": options.stages, "to": options.to, "folder": folder}
    _give(options, {"order": "upgrade", **given, **_terms(options)})
    return 0


def rollback(options: argparse.Namespace) -> int:
    """Exit code 0 when the version before serves, also that before an upgrade under way."""
    _give(options, {"order": "rollback", "stage": options.stage, **_terms(options)})
    return 0


def versions(options: argparse.Namespace) -> int:
    """A table."""
    found = Table(box=None, pad_edge=False)
    for column in ("stage", "version", "phase", "ready", "open", "from"):
        found.add_column(column)
    for row in _give(options, {"order": "versions"}):
        is_open = "-" if row["open"] is None else str(row["open"])
        ready = "yes" if row["ready"] else "no"
        found.add_row(row["stage"], str(row["version"]), row["phase"], ready, is_open, row["where"])
    Console().print(found)
    return 0


@contextmanager
def obeying(server: Server, out: Path) -> Iterator[Upgrades]:
    """The commands are obeyed by a server while the block runs."""
    upgrades = Upgrades(server)
    socket = SHARED_MEMORY / f"tristage-serve-{os.getpid()}-control"
    record = out / SERVING / f"{os.getpid()}.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    control = Control(socket, orders=_orders(upgrades))
    told = {"pid": os.getpid(), "started": start_time(os.getpid()), "control": str(socket)}
    record.write_text(json.dumps(told))
    try:
        yield upgrades
    finally:
        record.unlink(missing_ok=True)
        control.close()


def _orders(upgrades: Upgrades) -> dict[str, Any]:
    def up(given: Mapping[str, Any], tell: Tell) -> None:
        folder = Path(given["folder"]) if given["folder"] else None
        terms = Terms(**given["terms"])
        upgrades.upgrade(given["stages"], to=given["to"], folder=folder, terms=terms, tell=tell)

    def back(given: Mapping[str, Any], tell: Tell) -> None:
        upgrades.rollback(given["stage"], Terms(**given["terms"]), tell)

    def rows(given: Mapping[str, Any], tell: Tell) -> list[dict[str, Any]]:
        return [asdict(row) for row in upgrades.versions()]

    return {"upgrade": up, "rollback": back, "versions": rows}


def _add_terms(parser: argparse.ArgumentParser) -> None:
    default = Terms()
    times = {
        "--trial-s": (default.trial_s, "watched for so long behind the switch"),
        "--answer-s": (default.answer_s, "taken back when it answers nothing for so long"),
        "--drain-s": (default.drain_s, "what turns that are open at a switch may take"),
    }
    for name, (seconds, what) in times.items():
        parser.add_argument(name, type=float, default=seconds, help=f"{what} (%(default)g)")
    parser.add_argument(
        "--gate", default="", help="a command that has to end with 0 beforehand, within 10 minutes"
    )
    parser.add_argument("--server", type=int, metavar="PID", help="of `serve`, if several run")


def _terms(options: argparse.Namespace) -> dict[str, Any]:
    return {"terms": {one.name: getattr(options, one.name) for one in fields(Terms)}}


def _give(options: argparse.Namespace, order: Mapping[str, Any]) -> Any:
    """What the server answers in the end; what it does meanwhile is printed."""
    for told in ask(_running(options.out, options.server), order):
        if "progress" in told:
            print(told["progress"], flush=True)
    return told.get("told")


def _running(out: Path, wanted: int | None) -> Path:
    """The socket of the server that is meant."""
    found = {}
    for record in (out / SERVING).glob("*.json"):
        told = json.loads(record.read_text())
        if start_time(told["pid"]) == told["started"]:
            found[told["pid"]] = Path(told["control"])
        else:
            record.unlink(missing_ok=True)
    if wanted is not None and wanted in found:
        return found[wanted]
    if wanted is not None or not found:
        raise UpgradeRefused("no server runs that `python -m deploy serve` has started")
    if len(found) > 1:
        raise DeployError(f"several servers run, name one: --server {' or '.join(map(str, found))}")
    return next(iter(found.values()))
