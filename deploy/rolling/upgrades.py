"""The versions of the stages of one server, changed while it serves.

The new version is loaded beside the old as a model of its own (`think.v2`), tried, and switched to:
turns that begin from then on go there, those that are open stay where they began. When it has stood
its trial and the old one has no turn left, the stage's own name becomes the new version, turns go
back to that name, and `think.v2` is unloaded: what remains is a server as if started with it.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy import figures
from deploy.budget import SERVER_BYTES, model_bytes, refuse_over
from deploy.errors import BytesUnfit, DeployError, ServerFailed, UpgradeFailed, UpgradeRefused
from deploy.launcher import DOORS, VERSIONS, Server
from deploy.readiness import Probe, control_request, probing
from deploy.repositories import Model, place, remove
from deploy.rolling.policy import Phase, Seen, Trial, Upgrade
from deploy.rolling.sources import (
    Version,
    as_started,
    of_folder,
    of_number,
    refuse_others_callers,
)
from deploy.rolling.trying import processes, seen, try_out
from deploy.views import stages
from python_backends.versions import Serving

LOAD_TIMEOUT_S: Final = 600.0
ORDER_TIMEOUT_S: Final = 5.0
LOOK_S: Final = 0.2
GATE_TIMEOUT_S: Final = 600.0

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Terms:
    """How a version is brought in."""

    trial_s: float = 5.0
    """The old one stays loaded for so long behind the switch, to be switched back to at once."""

    drain_s: float = 120.0
    """What turns that are open at the switch may take; the upgrade is taken back then."""

    gate: str = ""
    """A command that is run while no turn goes to the new version; it fails unless that ends with
    0. TRISTAGE_SHADOW names the model, TRISTAGE_GRPC the server."""


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


@dataclass
class _Move:
    """One stage on its way from a version to another."""

    now: Version
    new: Version
    upgrade: Upgrade
    beside: Mapping[str, Model]
    pids: set[int] = field(default_factory=set)

    @property
    def loads(self) -> list[str]:
        """The new one's models that are loaded, by their own names; the stage last."""
        names = dict(zip(self.new.models, self.beside, strict=True))
        return [names[name] for name in self.new.loads]

    @property
    def model(self) -> str:
        return self.loads[-1]


class Upgrades:
    """One change at a time. Methods are for any thread."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._shelves: dict[str, _Shelf] = {}
        self._busy = threading.Lock()
        self._moves: Sequence[_Move] = ()
        self._called_off = threading.Event()

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
        before serve again.
        """
        with self._alone():
            found = []
            for stage in wanted:
                shelf = self._shelf(stage)
                found.append(self._version(shelf, to, folder))
            self._change(found, terms or Terms(), tell)

    def rollback(
        self, stage: str, terms: Terms | None = None, tell: Tell = lambda text: None
    ) -> None:
        """Call off the upgrade that is under way, or bring the version before back."""
        if any(move.now.stage == stage for move in self._moves):
            self._called_off.set()
            tell("the upgrade that is under way is taken back")
            return
        with self._alone():
            shelf = self._shelf(stage)
            if shelf.before is None:
                raise UpgradeRefused(f"no version of {stage} served before {shelf.now}")
            self._change([shelf.versions[shelf.before]], terms or Terms(), tell)

    def versions(self) -> list[Row]:
        """Of every stage."""
        told = figures.open_requests(figures.read_metrics(self._server.metrics_address))
        moves = {move.now.stage: move for move in self._moves}
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
                    here = phase is not Phase.GONE
                    ready = here and probe.model_is_ready(name)
                    is_open = told.get(stage) if phase is Phase.SERVING else None
                    rows.append(Row(stage, number, phase, ready, is_open, version.where))
        return rows

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
            first = as_started(stage, self._models, self._callers)
            self._shelves[stage] = _Shelf({first.number: first}, first.number)
        return self._shelves[stage]

    def _version(self, shelf: _Shelf, to: int | None, folder: Path | None) -> Version:
        now = shelf.versions[shelf.now]
        if to == now.number:
            raise UpgradeRefused(f"version {to} of {now.stage} serves already")
        if to is not None and to in shelf.versions:
            found = shelf.versions[to]
        elif to is not None:
            found = of_number(now, to, self._models)
        elif folder is not None:
            number = max(shelf.versions) + 1
            found = of_folder(now, number, folder, self._server.settings.overrides or {})
        else:
            raise UpgradeRefused("say which version: --to NUMBER, or --from FOLDER")
        refuse_others_callers(now, found)
        return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            busy = ", ".join(move.now.stage for move in self._moves)
            raise UpgradeRefused(f"an upgrade is under way: {busy}")
        try:
            yield
        finally:
            self._moves = ()
            self._called_off.clear()
            self._busy.release()

    def _probing(self) -> Any:
        return probing(self._server.grpc_address, self._server.access)

    def _change(self, wanted: Sequence[Version], terms: Terms, tell: Tell) -> None:
        moves = []
        for new in wanted:
            now = self._shelves[new.stage].versions[self._shelves[new.stage].now]
            moves.append(_Move(now, new, Upgrade(now.number, new.number), new.beside()))
        self._refuse_over(moves)
        for move in moves:
            self._shelves[move.new.stage].versions[move.new.number] = move.new
        self._moves = moves
        change = _Change(self._server, moves, terms, tell, self._called_off, self._doors)
        with self._probing() as probe:
            change.make(probe)
        for move in moves:
            shelf = self._shelves[move.new.stage]
            shelf.before, shelf.now = shelf.now, move.new.number

    def _refuse_over(self, moves: Sequence[_Move]) -> None:
        """BytesUnfit unless both versions fit at once."""
        server = self._server
        models = self._models | {n: one for move in moves for n, one in move.beside.items()}
        loads = [*server.models, *(name for move in moves for name in move.loads)]
        try:
            refuse_over(server.settings.room, loads, models)
        except BytesUnfit as fault:
            raise BytesUnfit(f"two versions at once do not fit: {fault}") from fault


class _Change:
    """Stages that go from a version to another together, on one run of a server."""

    def __init__(
        self,
        server: Server,
        moves: Sequence[_Move],
        terms: Terms,
        tell: Tell,
        called_off: threading.Event,
        doors: Sequence[str],
    ) -> None:
        self._server = server
        self._moves = moves
        self._terms = terms
        self._tell = tell
        self._called_off = called_off
        self._doors = doors
        self._run = server.run
        self._file = server.run / VERSIONS
        self._becoming: list[_Move] = []
        """Whose names have been touched."""

    def make(self, probe: Probe) -> None:
        """UpgradeFailed when it was taken back."""
        try:
            self._load(probe)
            self._try_out(probe)
            epoch = self._switch({move.now.stage: move.model for move in self._moves})
            self._stand_trial()
            self._drain(probe, epoch)
            self._settle(probe)
        except (DeployError, OSError) as failure:
            self._take_back(probe)
            told = ", ".join(f"{m.now.stage} {m.new.number}" for m in self._moves)
            back = ", ".join(f"{m.now.stage} {m.now.number}" for m in self._moves)
            raise UpgradeFailed(f"{told} was taken back, {back} serves: {failure}") from failure
        epoch = self._switch({move.now.stage: move.now.stage for move in self._moves})
        self._drain(probe, epoch)
        self._unload_beside(probe)
        self._say("serving; the version before is gone")

    def _say(self, what: str) -> None:
        names = ", ".join(f"{move.now.stage} {move.new.number}" for move in self._moves)
        self._tell(f"{names}: {what}")

    def _load(self, probe: Probe) -> None:
        self._say("loading, beside what serves")
        for move in self._moves:
            for model in move.beside.values():
                place(model, self._view(move) / model.name)
            for name in move.loads:
                self._refuse_if_called_off()
                probe.load(name, LOAD_TIMEOUT_S)
            move.upgrade.loaded()

    def _view(self, move: _Move) -> Path:
        """The repository of the run that has the stage."""
        return next((self._run / "repositories").glob(f"*/{move.now.stage}")).parent

    def _try_out(self, probe: Probe) -> None:
        self._say("shadow: tried, and no turn goes there")
        for move in self._moves:
            for name in move.loads:
                same = move.now.models[move.now.stage].config if name == move.model else None
                try_out(probe, move.beside[name].config, same)
            self._pass_gate(move)
            move.pids = processes(self._server, move.loads)
        self._refuse_if_called_off()

    def _pass_gate(self, move: _Move) -> None:
        if not self._terms.gate:
            return
        told = {"TRISTAGE_SHADOW": move.model, "TRISTAGE_GRPC": self._server.grpc_address}
        environment = {**os.environ, **self._server.access.environment(), **told}
        try:
            done = subprocess.run(
                self._terms.gate, shell=True, env=environment, timeout=GATE_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as late:
            raise UpgradeFailed(f"its gate took more than {GATE_TIMEOUT_S:g} s") from late
        if done.returncode:
            raise UpgradeFailed(f"its gate ended with {done.returncode}: {self._terms.gate}")

    def _switch(self, to: Mapping[str, str]) -> int:
        """Turns that begin go there, all of it at once; the epoch of that."""
        self._require_run()
        before = Serving.read(self._file)
        models = {**before.models, **to}
        models = {stage: model for stage, model in models.items() if stage != model}
        beside = [model for move in self._moves for model in move.beside.values()]
        loads = {name for move in self._moves for name in move.loads}
        if any(model in loads for model in to.values()):
            self._server.take_up(*(one for one in beside if one.name in loads))
            for move in self._moves:
                move.upgrade.switched()
        after = Serving(before.epoch + 1, models)
        after.write(self._file)
        return after.epoch

    def _stand_trial(self) -> None:
        self._say(f"serving turns that begin, on trial for {self._terms.trial_s:g} s")
        began, seconds = time.monotonic(), self._terms.trial_s
        trials = [(move, Trial(began, seconds, self._seen(move))) for move in self._moves]
        while not self._have_stood(trials):
            self._refuse_if_called_off()
            time.sleep(LOOK_S)

    def _have_stood(self, trials: Sequence[tuple[_Move, Trial]]) -> bool:
        self._require_run()
        stand = [trial.stays(time.monotonic(), self._seen(move)) for move, trial in trials]
        return all(stand)

    def _seen(self, move: _Move) -> Seen:
        return seen(self._server, move.new.stage, move.new.number, move.loads, move.pids)

    def _drain(self, probe: Probe, epoch: int) -> None:
        """Until no turn is open that began before an epoch. ServerFailed after `drain_s`."""
        deadline = time.monotonic() + self._terms.drain_s
        while why_not := self._why_not_drained(probe, epoch):
            self._require_run()
            if time.monotonic() > deadline:
                raise ServerFailed(f"after {self._terms.drain_s:g} s {why_not}")
            time.sleep(LOOK_S)

    def _why_not_drained(self, probe: Probe, epoch: int) -> str:
        """Empty when every door says that none of its turns began earlier."""
        for door in self._doors:
            order = control_request(self._server.config(door), {"epochs": True})
            try:
                told = probe.told(order, ORDER_TIMEOUT_S)["epochs"]
            except ServerFailed as failure:
                return f"it is not known what is open: {failure}"
            if left := sum(turns for began, turns in told.items() if int(began) < epoch):
                return f"{left} turns of {door} that began before are open"
        return ""

    def _settle(self, probe: Probe) -> None:
        """The stage's own name becomes the new version, for those who call it by that."""
        self._refuse_if_called_off()
        for move in self._moves:
            self._tell(f"{move.now.stage} {move.new.number}: settling under the stage's own name")
            self._becoming.append(move)
            self._become(probe, move, move.new, beside=self._thrice(move))
            move.upgrade.drained()

    def _thrice(self, move: _Move) -> bool:
        """There is room to load it once more beside both."""
        server = self._server
        models = {name: server.model(name) for name in (*server.known_names, *server.models)}
        loads = [*(models[name] for name in server.models), *move.new.models.values()]
        total = SERVER_BYTES + sum(model_bytes(one, models) for one in loads)
        return total <= server.settings.room

    def _become(self, probe: Probe, move: _Move, version: Version, *, beside: bool) -> None:
        server, view = self._server, self._view(move)
        with server.changing:
            for name, model in version.models.items():
                place(model, view / name)
            for name in version.loads:
                if not beside:
                    probe.unload(name, LOAD_TIMEOUT_S)
                probe.load(name, LOAD_TIMEOUT_S)
            server.replaced |= version.models
            server.take_up(*version.models.values(), loaded=False)
            server.take_up(*(version.models[name] for name in version.loads))
        try_out(probe, version.models[version.stage].config)

    def _take_back(self, probe: Probe) -> None:
        """Whatever was done; the versions before serve under their own names."""
        if not self._is_run:
            return  # it was started again, with what it had
        with suppress(ServerFailed):
            for move in self._becoming:
                ready = probe.model_is_ready(move.now.stage)
                self._become(probe, move, move.now, beside=ready)
        began = [move for move in self._moves if not move.upgrade.over and move.upgrade.failed()]
        if began or self._becoming:
            epoch = self._switch({move.now.stage: move.now.stage for move in self._moves})
            with suppress(ServerFailed):
                self._drain(probe, epoch)
        for move in began:
            move.upgrade.drained()
        self._unload_beside(probe)

    def _unload_beside(self, probe: Probe) -> None:
        for move in self._moves:
            with self._server.changing:
                self._server.let_go(*move.loads)
                for name in reversed(move.loads):
                    with suppress(ServerFailed):  # it was never loaded
                        probe.unload(name, LOAD_TIMEOUT_S)
            for name in move.beside:
                remove(self._view(move) / name)

    @property
    def _is_run(self) -> bool:
        try:
            return self._server.run == self._run and self._server.alive
        except RuntimeError:
            return False

    def _require_run(self) -> None:
        if not self._is_run:
            raise ServerFailed("the server has been started again meanwhile")

    def _refuse_if_called_off(self) -> None:
        if self._called_off.is_set():
            raise UpgradeFailed("it was called off")
