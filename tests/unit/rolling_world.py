"""Upgrades without a tritonserver: a server that says of each model which version it has loaded."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from deploy.errors import ServerFailed
from deploy.launcher import VERSIONS, Server
from deploy.repositories import Model, mirror, read_models
from deploy.rolling import change, upgrades
from deploy.rolling.change import Terms
from deploy.rolling.policy import Seen
from deploy.rolling.upgrades import Upgrades
from deploy.settings import REPOSITORIES, Settings
from python_backends.versions import Serving

PATIENCE_S = 10.0
TERMS = Terms(trial_s=0.0, drain_s=PATIENCE_S)


def copies(folder: Path) -> dict[str, Model]:
    """A repository with the models of turns, and a version folder of each."""
    for source in REPOSITORIES:
        for model in read_models([source], {}).values():
            version = folder / model.name / "1"
            version.mkdir(parents=True, exist_ok=True)
            (version / "weights").write_text(f"{folder.name} {model.name}")
            (folder / model.name / "config.pbtxt").write_text(model.config_file.read_text())
    return read_models([folder], {})


def written_again(folder: Path, name: str) -> None:
    """Other weights in the version folder of a model."""
    (folder / name / "1" / "weights").write_text("other ones, of another length")


class FakeServer(Server):
    """Is started again by `start_again`, as its keeper would."""

    def __init__(self, folder: Path, first: dict[str, Model]) -> None:
        super().__init__(Settings(bytes=1 << 50, out=folder))
        self._first = first
        self._folder, self._runs = folder, 0
        self.start_again()

    @property
    def alive(self) -> bool:
        return True

    @property
    def pid(self) -> int:
        return os.getpid()

    def start_again(self) -> None:
        """With what it was started with, and what was brought in since."""
        self._runs += 1
        self._known = self._first | self.replaced
        self.models = sorted(self._known)
        run = self._folder / f"run-{self._runs}"
        run.mkdir()
        Serving().write(run / VERSIONS)
        mirror(self._known.values(), run / "repositories")
        self._run = run, f"tristage-no-server-{run}-"

    def end(self) -> None:
        """It is not there, and not started again yet."""
        self._run = None

    @property
    def serving(self) -> Serving:
        return Serving.read(self.run / VERSIONS)


class World:
    """What a server has loaded, and the turns that are open there. `on_load` is told of each load,
    and may have it fail; `seen`: what a version on trial has answered."""

    def __init__(self, folder: Path) -> None:
        self.first = copies(folder / "first")
        self.server = FakeServer(folder, self.first)
        self.loaded = {name: self.weights(name) for name in self.server.models}
        self.turns: dict[int, int] = {}
        self.seen = Seen(0, 0, alive=True)
        self.blind = 0
        self.fails: set[str] = set()
        """Models that answer probes alone."""

        self.told: list[str] = []
        self.on_load: Callable[[str, Path], None] = lambda name, weights: None
        self.upgrades = Upgrades(self.server)
        self._until = time.monotonic() + 3 * PATIENCE_S

    def look(self) -> Seen:
        """ServerFailed so many times as `blind` says."""
        if self.blind:
            self.blind -= 1
            raise ServerFailed("no metrics: timed out")
        return self.seen

    def served_by(self, stage: str) -> str:
        """The weights that a turn of this stage meets; KeyError when nothing is loaded."""
        return self.loaded[self.server.serving.model(stage)].read_text()

    def now(self, stage: str) -> list[tuple[int, str, bool]]:
        """The versions of a stage."""
        rows = self.upgrades.versions()
        return [(one.version, one.phase, one.ready) for one in rows if one.stage == stage]

    @property
    def beside(self) -> list[str]:
        return [name for name in self.loaded if ".v" in name]

    @property
    def folders_beside(self) -> list[str]:
        return [path.name for path in self.server.run.glob("repositories/*/*.v*")]

    @contextmanager
    def trying(self, act: Callable[[], None]) -> Iterator[list[BaseException]]:
        """Something is done on a thread of its own, and over at the end; what it raised."""
        raised: list[BaseException] = []

        def run() -> None:
            try:
                act()
            except BaseException as failure:
                raised.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield raised
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def start_again(self) -> None:
        """The server has ended, and its keeper has started it."""
        self.server.start_again()
        self.loaded = {name: self.weights(name) for name in self.server.models}

    def upgrade(self, stages: Sequence[str], folder: Path, terms: Terms = TERMS) -> None:
        self.upgrades.upgrade(stages, folder=folder, terms=terms, tell=self.told.append)

    def rollback(self, stage: str) -> None:
        self.upgrades.rollback(stage, TERMS, self.told.append)

    def wait_for(self, told: str) -> None:
        """Until it has been told."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(told in one for one in self.told):
            assert time.monotonic() < deadline, self.told
            time.sleep(0.001)

    def wait_a_moment(self) -> None:
        """Within a loop, which has an end."""
        assert time.monotonic() < self._until, self.told
        time.sleep(0.001)

    def weights(self, name: str) -> Path:
        """That a model has in the repositories of the run."""
        [weights] = self.server.run.glob(f"repositories/*/{name}/*/weights")
        return weights.resolve()


class Probe:
    """What an upgrade needs of deploy.readiness.Probe."""

    def __init__(self, world: World) -> None:
        self._world = world

    def load(self, name: str, timeout_s: float) -> None:
        weights = self._world.weights(name)
        self._world.on_load(name, weights)
        self._world.loaded[name] = weights

    def unload(self, name: str, timeout_s: float) -> None:
        if self._world.loaded.pop(name, None) is None:
            raise ServerFailed(f"model {name!r} was not unloaded")

    def model_is_ready(self, name: str) -> bool:
        return name in self._world.loaded

    def infer(self, config: Any, timeout_s: float) -> None:
        self._require(config.name)

    def ask(self, request: Any, timeout_s: float) -> None:
        self._require(request.model_name)
        if request.model_name in self._world.fails:
            raise ServerFailed(f"model {request.model_name!r} failed: it answers probes alone")

    def told(self, order: Any, timeout_s: float) -> Any:
        turns = self._world.turns.items()
        return {"epochs": {str(epoch): count for epoch, count in turns if count}}

    def _require(self, name: str) -> None:
        if name not in self._world.loaded:
            raise ServerFailed(f"model {name!r} failed: it is not loaded")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path)
    probe = Probe(found)
    monkeypatch.setattr(upgrades, "probing", lambda *_: nullcontext(probe))
    monkeypatch.setattr(upgrades.figures, "read_metrics", lambda *_: "")
    monkeypatch.setattr(change, "seen", lambda *_: found.look())
    monkeypatch.setattr(change, "LOOK_S", 0.001)
    return found
