"""The versions of the stages of one server, changed while it serves.

The new version is loaded beside the old as a model of its own (`think.v2`), tried, and switched to:
turns that begin from then on go there, those that are open stay where they began. When it has stood
its trial and the old one has no turn left, the stage's own name becomes the new version, turns go
back to that name, and `think.v2` is unloaded: what remains is a server as if started with it.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploy import figures
from deploy.budget import refuse_over
from deploy.errors import BytesUnfit, ServerFailed, UpgradeFailed, UpgradeRefused
from deploy.launcher import DOORS, VERSIONS, Server
from deploy.readiness import probing
from deploy.repositories import Model
from deploy.rolling.change import Change, Move, Tell, Terms
from deploy.rolling.policy import Phase, Upgrade
from deploy.rolling.sources import (
    Version,
    as_started,
    files_of,
    of_folder,
    of_number,
    refuse_others_callers,
    refuse_overwritten,
)
from deploy.views import stages
from python_backends.versions import Serving


@dataclass(frozen=True)
class Row:
    """A version of a stage, for a table."""

    stage: str
    version: int
    phase: str
    ready: bool
    open: int | None
    where: str


@dataclass
class _Shelf:
    """The versions of a stage that are known, and which one serves; `before`: which one did."""

    versions: dict[int, Version]
    now: int
    before: int | None = None

    @property
    def serving(self) -> Version:
        return self.versions[self.now]

    def brought(self, number: int) -> None:
        """This one serves from now on."""
        self.before, self.now = self.now, number


class Upgrades:
    """One change at a time. Methods are for any thread."""

    def __init__(self, server: Server) -> None:
        """The server has been started, and its files are those that it has loaded."""
        self._server = server
        self._shelves: dict[str, _Shelf] = {}
        self._busy = threading.Lock()
        self._wanted: Sequence[str] = ()
        self._change: Change | None = None
        self._first = {
            name: replace(model, artefacts=model.version_folder)
            for name, model in self._models.items()
        }
        self._files = {name: files_of(one.version_folder) for name, one in self._first.items()}

    def upgrade(
        self,
        wanted: Sequence[str],
        *,
        to: int | None = None,
        folder: Path | None = None,
        terms: Terms | None = None,
        tell: Tell = lambda text: None,
    ) -> None:
        """Bring stages, all at once, to the version folders `to`, or to what a repository `folder`
        has of them.

        UpgradeRefused or BytesUnfit before anything is loaded; UpgradeFailed when the versions
        before serve again, or with those that do not.
        """
        if len(set(wanted)) != len(wanted) or not wanted:
            raise UpgradeRefused(f"each stage once, not {', '.join(wanted) or 'none'}")
        with self._alone(wanted):
            found = [self._version(self._shelf(stage), to, folder) for stage in wanted]
            self._make(found, terms or Terms(), tell)

    def rollback(
        self, stage: str, terms: Terms | None = None, tell: Tell = lambda text: None
    ) -> None:
        """Call off the upgrade that is under way, all of it, or bring the version before back; that
        serves at the end.

        UpgradeRefused when none is known, its files are not there any more, or it is being brought
        back already; UpgradeFailed when it does not serve.
        """
        change = self._under_way(stage)
        if change is not None and self._called_off(change, tell):
            return
        with self._alone([stage]):
            shelf = self._shelf(stage)
            if shelf.before is None:
                raise UpgradeRefused(f"no version of {stage} served before {shelf.now}")
            version = shelf.versions[shelf.before]
            version.refuse_other_files()
            self._make([version], terms or Terms(), tell)

    def _under_way(self, stage: str) -> Change | None:
        """What would be called off; UpgradeRefused when it is a rollback itself."""
        change = self._change
        for move in change.moves if change is not None else ():
            if move.stage == stage:
                if move.new.number == self._shelf(stage).before and not move.upgrade.over:
                    raise UpgradeRefused(f"{stage} is on its way back to {move.new.number} already")
                return change
        return None

    def _called_off(self, change: Change, tell: Tell) -> bool:
        """Whether it is back when it is over; it may have settled in the meantime."""
        if change.recall.call_off():
            tell(f"{change.new}, which is under way, is being taken back")
        else:
            tell(f"{change.new} has settled already, and is rolled back when that is done")
        change.over.wait()
        if change.settled:
            return False
        if not change.is_back:
            raise UpgradeFailed(str(change.failure or f"{change.new} ended unexpectedly"))
        tell(f"{change.old}: serving again")
        return True

    def versions(self) -> list[Row]:
        """Of every stage."""
        told = figures.open_requests(figures.read_metrics(self._server.metrics_address))
        change = self._change
        moves = {move.stage: move for move in (change.moves if change else ())}
        serving = Serving.read(self._run / VERSIONS)
        rows = []
        with self._probing() as probe:
            for stage in stages(self._models, self._callers):
                shelf = self._shelf(stage)
                move = moves.get(stage)
                for number, version in sorted(shelf.versions.items()):
                    phase = Phase.SERVING if number == shelf.now else Phase.GONE
                    name = stage
                    if move and number in move.upgrade.phases:
                        phase = move.upgrade.phases[number]
                        name = stage if number == move.now.number else move.model
                    if phase is Phase.SERVING:
                        name = serving.model(stage)
                    here = phase is not Phase.GONE
                    ready = here and probe.model_is_ready(name)
                    is_open = told.get(stage) if phase is Phase.SERVING else None
                    rows.append(Row(stage, number, phase, ready, is_open, version.where))
        return rows

    @property
    def _run(self) -> Path:
        try:
            return self._server.run
        except RuntimeError as fault:
            raise ServerFailed("the server is being started again") from fault

    @property
    def _models(self) -> dict[str, Model]:
        return {name: self._server.model(name) for name in self._server.known_names}

    @property
    def _callers(self) -> list[str]:
        """What walkers walk: the ensembles behind front doors and calls."""
        found = []
        for name in self._doors:
            parameters = self._server.model(name).parameters
            found += [
                parameters[key] for key in ("ensemble", "transcribe_model") if key in parameters
            ]
        return found

    @property
    def _doors(self) -> list[str]:
        server = self._server
        return [name for name in server.models if server.config(name).backend in DOORS]

    def _shelf(self, stage: str) -> _Shelf:
        if stage not in self._shelves:
            first = as_started(stage, self._first, self._callers)
            first = replace(first, files={name: self._files[name] for name in first.models})
            self._shelves[stage] = _Shelf({first.number: first}, first.number)
        return self._shelves[stage]

    def _version(self, shelf: _Shelf, to: int | None, folder: Path | None) -> Version:
        now = shelf.serving
        if to == now.number:
            raise UpgradeRefused(f"version {to} of {now.stage} serves already")
        known = shelf.versions.get(to) if to is not None else None
        if known is not None and not known.other_files:
            found = known
        elif to is not None:
            found = of_number(now, to, self._models)
        elif folder is not None:
            number = max(shelf.versions) + 1
            found = of_folder(now, number, folder, self._server.settings.overrides or {})
        else:
            raise UpgradeRefused("say which version: --to NUMBER, or --from FOLDER")
        refuse_others_callers(now, found)
        refuse_overwritten(now, found)
        return found

    @contextmanager
    def _alone(self, wanted: Sequence[str]) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise UpgradeRefused(f"an upgrade is under way: {', '.join(self._wanted)}")
        self._wanted = wanted
        try:
            yield
        finally:
            change, self._change = self._change, None
            self._busy.release()
            if change is not None:
                change.over.set()

    def _probing(self) -> Any:
        return probing(self._server.grpc_address, self._server.access)

    def _make(self, wanted: Sequence[Version], terms: Terms, tell: Tell) -> None:
        names = {name: beside for new in wanted for name, beside in new.names.items()}
        moves = []
        for new in wanted:
            now = self._shelves[new.stage].serving
            moves.append(Move(now, new, Upgrade(now.number, new.number), new.beside(names)))
        self._refuse_over(moves)
        for move in moves:
            self._shelves[move.stage].versions[move.new.number] = move.new
        self._change = Change(self._server, self._run, moves, terms, tell, self._doors, self._serve)
        with self._probing() as probe:
            self._change.make(probe)

    def _serve(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self._shelves[move.stage].brought(move.new.number)

    def _refuse_over(self, moves: Sequence[Move]) -> None:
        """BytesUnfit unless both versions fit at once."""
        server = self._server
        models = self._models | {name: server.model(name) for name in server.models}
        models |= {name: one for move in moves for name, one in move.beside.items()}
        loads = [*server.models, *(name for move in moves for name in move.loads)]
        try:
            refuse_over(server.settings.room, loads, models)
        except BytesUnfit as fault:
            raise BytesUnfit(f"two versions at once do not fit: {fault}") from fault
