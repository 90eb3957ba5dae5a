"""`python -m build tensorrt`: build the engines that are missing or stale, or only say which are.

It never runs inside a server: an engine takes seconds to minutes to build and the whole GPU.
"""

import importlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from build.artifact import REPOSITORY
from build.contract import read_config
from build.errors import EngineRefused
from build.fetch import cache_dir, replacing
from build.tensorrt import budget, examples, half, record, view
from build.tensorrt.adapter import activation_bytes, build, parsed_as_meant
from build.tensorrt.profiles import Profile, told
from build.tensorrt.recipes import HALF, RECIPES, Recipe, chosen, open_inputs
from build.tensorrt.record import Key
from python_backends.digests import sha256
from python_backends.tensorrt.runtime import Toolkit

INSTALL = "on a machine with an NVIDIA GPU: pip install -e '.[build,tensorrt]'"


def run(models: Sequence[str], *, repository: Path | None, check: bool, force: bool) -> None:
    """Build what is missing or stale of these engines (of all but step engines where none is
    named). `check`: only look. `repository`: make one there, with links to ours, for the engines.

    Raises EngineRefused for what cannot be built, or, with `check`, for what may not be used.
    """
    recipes = chosen(models)
    kit, capability = Toolkit.of(_tensorrt()), device_capability()
    if repository is not None and not check:
        view.prepare(repository, RECIPES)
    faults = []
    for recipe in recipes:
        made = Engine(recipe, kit, capability, repository or REPOSITORY)
        fault = made.fault()
        if fault and check:
            faults.append(fault)
        elif fault or force:
            print(made.build(force=force))
    if faults:
        raise EngineRefused("\n".join(faults))
    print(f"{len(recipes)} engines for compute capability {capability}, {kit.version}: up to date")


def device_capability() -> str:
    """Compute capability of the first visible GPU, as "8.9". Raises EngineRefused without one."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    query = ["--query-gpu=compute_cap", "--format=csv,noheader", f"--id={first}"]
    command = ["nvidia-smi", *query]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as fault:
        raise EngineRefused(f"engines are built on the GPU they run on: {fault}") from fault
    return answer.stdout.strip()


class Engine:
    """One engine of one GPU: kept in the cache, and put where the server looks."""

    def __init__(self, recipe: Recipe, kit: Toolkit, capability: str, repository: Path) -> None:
        if not recipe.graph_path.exists():
            raise EngineRefused(
                f"{recipe.graph_path} is not there; run: python -m build export"
                f" --portable {recipe.model}"
            )
        self.recipe, self.kit = recipe, kit
        self.profiles: list[Profile] = recipe.profiles(open_inputs(recipe.graph_path))
        self.key = Key(
            recipe.model,
            sha256(recipe.graph_path),
            recipe.precision,
            told(self.profiles),
            kit.library,
            kit.version,
            capability,
        )
        engines = cache_dir() / "engines"
        self.kept = engines / recipe.model / record.kept_name(self.key)
        self.timing = engines / f"timing-{kit.library}{kit.version}-cc{capability}.cache"
        self.path = repository / recipe.model / "1" / record.engine_name(capability)

    def fault(self) -> str | None:
        """Why it may not be used as it is."""
        return record.fault(self.path, self.key)

    def build(self, *, force: bool = False) -> str:
        """Build it where the cache has none, put it in its place, and tell what it takes."""
        if force or record.fault(self.kept, self.key):
            self._build()
        self._publish()
        return self._told()

    def _build(self) -> None:
        model, full = graph_of(self.recipe, self.profiles)
        parsed = parsed_as_meant(self.kit, model)
        engine = build(self.kit, parsed, self.profiles, timing=self.timing)
        activation = activation_bytes(self.kit, engine)
        with replacing(self.kept) as partial:
            partial.write_bytes(engine)
        facts = {"nodes_in_fp32": full, "declares": budget.declares(len(engine), activation)}
        record.write(self.kept, self.key, facts)

    def _publish(self) -> None:
        """The record last: without it an engine is not used."""
        record.beside(self.path).unlink(missing_ok=True)
        copies = {self.kept: self.path, record.beside(self.kept): record.beside(self.path)}
        for source, target in copies.items():
            with replacing(target) as partial:
                shutil.copyfile(source, partial)

    def _told(self) -> str:
        needed = (record.read(self.path) or {}).get("declares", {})
        config = self.recipe.served_config
        given = {k: v.string_value for k, v in read_config(config).parameters.items()}
        short = [f"{config}: {one}" for one in budget.short_of(given, needed)]
        return "\n".join([f"{self.path}", budget.as_parameters(needed), *short])


def graph_of(recipe: Recipe, profiles: Sequence[Profile]) -> tuple[onnx.ModelProto, list[str]]:
    """The graph to build from, in the recipe's precision, and its nodes that stay in fp32."""
    precise = onnx.load(recipe.graph_path)
    if recipe.precision != HALF:
        return precise, []
    # One row is enough to judge rounding by, and what ORT keeps of every node fits in memory.
    shapes = {name: (1, *bounds.usual[1:]) for name, bounds in profiles[-1].items()}
    return half.settled(recipe.graph_path, examples.feeds(precise, shapes))


def _tensorrt() -> Any:
    try:
        return importlib.import_module("tensorrt")
    except ImportError as fault:
        raise EngineRefused(f"TensorRT is not installed ({fault}); {INSTALL}") from fault
