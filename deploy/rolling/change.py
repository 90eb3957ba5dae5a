"""Stages that go from a version to another together, on one run of a server.

Until it has settled it can be called off, and whatever fails takes it back. From then on the new
versions serve under the stages' own names, whatever becomes of what is to be cleared away.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.budget import SERVER_BYTES, model_bytes
from deploy.errors import DeployError, ServerFailed, UpgradeFailed
from deploy.launcher import VERSIONS, Server
from deploy.readiness import Probe, control_request
from deploy.repositories import Model, place, remove
from deploy.rolling.gate import pass_gate
from deploy.rolling.policy import Recall, Seen, Trial, Upgrade
from deploy.rolling.sources import Version
from deploy.rolling.trying import end, processes, seen, try_out
from python_backends.versions import Serving, stage_of, version_of

LOAD_TIMEOUT_S: Final = 600.0
ORDER_TIMEOUT_S: Final = 5.0
LOOK_S: Final = 0.2

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Terms:
    """How a version is brought in."""

    trial_s: float = 5.0
    """The old one stays loaded for so long behind the switch, to be switched back to at once."""

    answer_s: float = 30.0
    """A version that is asked and answers nothing for so long has failed its trial, which lasts
    until it answers. More than the patience of the front door with a stage."""

    drain_s: float = 120.0
    """What turns that are open at a switch may take. The upgrade is taken back then; where that is
    done, or it has settled already, they are not waited for any longer."""

    gate: str = ""
    """A command that is run while no turn goes to the new version; it fails unless that ends with
    0. TRISTAGE_SHADOW names the model, TRISTAGE_GRPC the server."""


@dataclass
class Move:
    """One stage on its way from a version to another."""

    now: Version
    new: Version
    upgrade: Upgrade
    beside: Mapping[str, Model]
    pids: set[int] = field(default_factory=set)
    touched: bool = False
    """What stands under its own name may be the new one."""

    lost: str = ""
    """Why it could not be taken back: turns go on at the new version, beside."""

    @property
    def stage(self) -> str:
        return self.now.stage

    @property
    def loads(self) -> list[str]:
        """The new one's models that are loaded, by their own names; the stage last."""
        names = dict(zip(self.new.models, self.beside, strict=True))
        return [names[name] for name in self.new.loads]

    @property
    def model(self) -> str:
        return self.loads[-1]


class Change:
    """See the module. `serves` is told whose new version serves from then on."""

    def __init__(
        self,
        server: Server,
        run: Path,
        moves: Sequence[Move],
        terms: Terms,
        tell: Tell,
        doors: Sequence[str],
        serves: Callable[[Sequence[Move]], None],
    ) -> None:
        self.moves = moves
        self.recall = Recall()
        self.over = threading.Event()
        """Set by whoever has had it made, when nothing of it is under way any more."""

        self.failure: UpgradeFailed | None = None
        """Why it was taken back, and what could not be."""

        self.settled = False
        self._server = server
        self._terms = terms
        self._tell = tell
        self._doors = doors
        self._serves = serves
        self._run = run
        self._file = run / VERSIONS
        before = Serving.read(self._file)
        self._known_at = 0.0
        """When it was last known what the new versions have answered."""

        self._since = before.epoch
        """From when on turns begin at the new versions."""

        self._home = {move.stage: before.model(move.stage) for move in moves}

    @property
    def old(self) -> str:
        return ", ".join(f"{move.stage} {move.now.number}" for move in self.moves)

    @property
    def new(self) -> str:
        return ", ".join(f"{move.stage} {move.new.number}" for move in self.moves)

    @property
    def is_back(self) -> bool:
        """Ended, and all of the versions before serve."""
        return self.failure is not None and not any(move.lost for move in self.moves)

    def make(self, probe: Probe) -> None:
        """UpgradeFailed when it was taken back, with what could not be."""
        try:
            self._load(probe)
            self._try_out(probe)
            self._since = self._switch({move.stage: move.model for move in self.moves})
            self._watch(probe)
            self._settle(probe)
        except Exception as failure:  # a bug, too, leaves the old versions serving
            self._take_back(probe)
            self.failure = UpgradeFailed(self._taken_back(failure))
            raise self.failure from failure
        self._clear_away(probe)

    def _taken_back(self, why: Exception) -> str:
        told = f"{self.new} was taken back, {self.old} serves: {why}"
        if lost := [move for move in self.moves if move.lost]:
            told = f"{self.new} was to be taken back: {why}. Not all of it was:"
        for move in lost:
            told += f" {move.stage} {move.new.number} serves on as {move.model} ({move.lost})."
        return told

    def _say(self, what: str) -> None:
        self._tell(f"{self.new}: {what}")

    def _load(self, probe: Probe) -> None:
        self._say("loading, beside what serves")
        for move in self.moves:
            for model in move.beside.values():
                place(model, self._view(move) / model.name)
            for name in move.loads:
                self.recall.refuse()
                probe.load(name, LOAD_TIMEOUT_S)
            move.upgrade.loaded()

    def _view(self, move: Move) -> Path:
        """The repository of the run that has the stage."""
        for folder in (self._run / "repositories").glob(f"*/{move.stage}"):
            return folder.parent
        raise ServerFailed(f"the run of the server has no {move.stage} any more")

    def _try_out(self, probe: Probe) -> None:
        self._say("shadow: tried, and no turn goes there")
        for move in self.moves:
            for name in move.loads:
                same = move.now.models[move.stage].config if name == move.model else None
                try_out(probe, move.beside[name].config, same)
            if self._terms.gate:
                self._pass_gate(move)
            move.pids = processes(self._server, move.loads)
        self.recall.refuse()

    def _pass_gate(self, move: Move) -> None:
        names = {"TRISTAGE_SHADOW": move.model, "TRISTAGE_GRPC": self._server.grpc_address}
        told = {**self._server.access.environment(), **names}
        pass_gate(self._terms.gate, told, self._tell, self._refuse)

    def _switch(self, to: Mapping[str, str]) -> int:
        """Turns that begin go there, all of it at once; the epoch of that."""
        self._require_run()
        before = Serving.read(self._file)
        models = {**before.models, **to}
        models = {stage: model for stage, model in models.items() if stage != model}
        for move in self.moves:
            if to.get(move.stage) == move.model:
                self._server.take_up(*(move.beside[name] for name in move.loads))
        after = Serving(before.epoch + 1, models)
        after.write(self._file)
        for move in self.moves:
            if to.get(move.stage) == move.model:
                move.upgrade.switched()
        return after.epoch

    def _watch(self, probe: Probe) -> None:
        """Until the new ones have stood their trial, and no turn is open that began before."""
        self._say(f"serving turns that begin, on trial for {self._terms.trial_s:g} s")
        began, terms = time.monotonic(), self._terms
        trials = [
            (move, Trial(began, terms.trial_s, self._first_seen(move), terms.answer_s))
            for move in self.moves
        ]
        self._known_at = time.monotonic()
        while not self._have_stood(trials):
            time.sleep(LOOK_S)
        self._say("trial stood; turns that began before it are waited for")
        self._drain(probe, range(self._since), lambda: self._have_stood(trials))
        while not self._have_stood(trials):
            time.sleep(LOOK_S)

    def _have_stood(self, trials: Sequence[tuple[Move, Trial]]) -> bool:
        self._refuse()
        try:
            found = [(trial, self._seen(move)) for move, trial in trials]
        except ServerFailed:
            if time.monotonic() - self._known_at > self._terms.answer_s:
                raise
            return False  # not known; one look that fails is no fault of the version
        self._known_at = time.monotonic()
        stand = [trial.stays(self._known_at, seen) for trial, seen in found]
        return all(stand)

    def _first_seen(self, move: Move) -> Seen:
        deadline = time.monotonic() + self._terms.answer_s
        while True:
            try:
                return self._seen(move)
            except ServerFailed:
                self._refuse()
                if time.monotonic() > deadline:
                    raise
            time.sleep(LOOK_S)

    def _refuse(self) -> None:
        """Whatever ends it before it has settled."""
        self.recall.refuse()
        self._require_run()

    def _seen(self, move: Move) -> Seen:
        return seen(self._server, move.stage, move.new.number, move.loads, move.pids)

    def _drain(self, probe: Probe, epochs: range, look: Callable[[], object]) -> None:
        """Until no turn is open that began in these epochs; whatever `look` raises ends it.
        ServerFailed after `drain_s`."""
        deadline = time.monotonic() + self._terms.drain_s
        while why_not := self._why_not_drained(probe, epochs):
            self._require_run()
            look()
            if time.monotonic() > deadline:
                raise ServerFailed(f"after {self._terms.drain_s:g} s {why_not}")
            time.sleep(LOOK_S)

    def _why_not_drained(self, probe: Probe, epochs: range) -> str:
        """Empty when every door says that none of its turns began then."""
        for door in self._doors:
            order = control_request(self._server.config(door), {"epochs": True})
            try:
                told = probe.told(order, ORDER_TIMEOUT_S)["epochs"]
            except ServerFailed as failure:
                return f"it is not known what is open: {failure}"
            if left := sum(turns for began, turns in told.items() if int(began) in epochs):
                return f"{left} turns of {door} that began before are open"
        return ""

    def _settle(self, probe: Probe) -> None:
        """The stage's own name becomes the new version, for those who call it by that."""
        for move in self.moves:
            self._refuse()
            self._tell(f"{move.stage} {move.new.number}: settling under the stage's own name")
            self._become(probe, move, move.new, beside=self._thrice(move))
        self._require_run()
        self.recall.settle()
        self._keep(self.moves)
        for move in self.moves:
            move.upgrade.drained()
        self.settled = True

    def _keep(self, moves: Sequence[Move]) -> None:
        """The new versions of these serve from now on, also when the server is started again.
        ServerFailed when that has happened meanwhile: it has what it had."""
        before = self._server.replaced
        new = {name: model for move in moves for name, model in move.new.models.items()}
        self._server.replaced = before | new
        try:
            self._require_run()
        except ServerFailed:
            self._server.replaced = before
            raise
        self._serves(moves)

    def _thrice(self, move: Move) -> bool:
        """There is room to load it once more beside both."""
        server = self._server
        models = {name: server.model(name) for name in (*server.known_names, *server.models)}
        loads = [*(models[name] for name in server.models), *move.new.models.values()]
        total = SERVER_BYTES + sum(model_bytes(one, models) for one in loads)
        return total <= server.settings.room

    def _become(self, probe: Probe, move: Move, version: Version, *, beside: bool) -> None:
        server, view = self._server, self._view(move)
        with server.changing:
            for name, model in version.models.items():
                place(model, view / name)
                move.touched = True
            for name in version.loads:
                if not beside:
                    with suppress(ServerFailed):  # it may be gone already
                        probe.unload(name, LOAD_TIMEOUT_S)
                probe.load(name, LOAD_TIMEOUT_S)
            server.take_up(*version.models.values(), loaded=False)
            server.take_up(*(version.models[name] for name in version.loads))
        try_out(probe, version.models[version.stage].config)

    def _take_back(self, probe: Probe) -> None:
        """Whatever was done, each stage by itself; those that cannot be are `lost`."""
        if not self._is_run:
            return  # it was started again, with what it had
        for move in self.moves:
            if move.touched:
                move.lost = self._restore(probe, move)
        began = [move for move in self.moves if not move.lost and move.upgrade.failed()]
        if began:
            try:
                self._go(probe, {move.stage: self._home[move.stage] for move in began})
            except (DeployError, OSError) as failure:
                for move in began:
                    move.lost = f"turns could not be sent elsewhere: {failure}"
        if not self._is_run:
            for move in self.moves:
                move.lost = ""
            return
        if lost := [move for move in self.moves if move.lost]:
            with suppress(ServerFailed):
                self._keep(lost)
        for move in began:
            if not move.lost:
                move.upgrade.drained()
        self._unload_beside(probe, [move for move in self.moves if not move.lost])

    def _restore(self, probe: Probe, move: Move) -> str:
        """Under its own name; why not, if it cannot be."""
        try:
            move.now.refuse_other_files()
            ready = probe.model_is_ready(move.stage)
            self._become(probe, move, move.now, beside=ready)
        except (DeployError, OSError) as failure:
            return f"{move.now.number} could not be loaded again: {failure}"
        return ""

    def _go(self, probe: Probe, home: Mapping[str, str]) -> None:
        """Turns go there, and those that are open elsewhere have had their time."""
        epoch = self._switch(home)
        try:
            self._drain(probe, range(self._since, epoch), lambda: None)
        except ServerFailed as failure:
            self._say(f"{failure}; that is not waited for any longer")

    def _clear_away(self, probe: Probe) -> None:
        """What is beside the new version; what cannot be goes with the next change."""
        try:
            self._go(probe, {move.stage: move.stage for move in self.moves})
        except (DeployError, OSError) as failure:
            if self._is_run:
                self._say(f"serving, but what is beside is not cleared away: {failure}")
                return
        self._unload_beside(probe, self.moves)
        self._say("serving; the version before is gone")

    def _unload_beside(self, probe: Probe, moves: Sequence[Move]) -> None:
        """What can be; all of it goes with the run."""
        for move in moves if self._is_run else ():
            try:
                self._unload(probe, move)
            except (DeployError, OSError) as failure:
                self._say(f"what is beside {move.stage} is not cleared away: {failure}")

    def _unload(self, probe: Probe, move: Move) -> None:
        """Also what an earlier change has left, but not what the stage is served by."""
        used = version_of(Serving.read(self._file).model(move.stage))
        mine = move.new.models.keys() | move.now.models.keys()
        left = {name for name in self._server.models if stage_of(name) in mine}
        left = {name for name in left if version_of(name) not in ("", used)}
        gone = [*sorted(left - set(move.loads)), *move.loads]
        with self._server.changing:
            self._server.let_go(*gone)
            for name in reversed(gone):
                with suppress(ServerFailed):  # it was never loaded
                    probe.unload(name, LOAD_TIMEOUT_S)
        if killed := end(self._server, gone):
            self._say(f"{len(killed)} processes of {', '.join(gone)} did not end: killed")
        for folder in self._view(move).glob("*.v*"):
            if stage_of(folder.name) in mine and version_of(folder.name) not in ("", used):
                remove(folder)

    @property
    def _is_run(self) -> bool:
        try:
            return self._server.run == self._run and self._server.alive
        except RuntimeError:
            return False

    def _require_run(self) -> None:
        if not self._is_run:
            raise ServerFailed("the server has been started again meanwhile")
