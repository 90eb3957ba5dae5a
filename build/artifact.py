"""Generated files of the model repository: written atomically, checked, with their provenance.

`<file>.json` beside an artefact says what it was made of; from it `up_to_date` tells whether making
it again could give anything else.
"""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

from build import contract
from build.errors import WeightsInvalid
from build.fetch import cache_dir, replacing
from build.lineage import ROOT, code_of
from python_backends.digests import sha256

REPOSITORY = ROOT / "model_repository"
EXPORTER_VERSION = 1
"""Raised when artefacts must be rebuilt although neither weights nor exporter code changed."""

_TOOLS = ("torch", "onnx", "onnxruntime", "numpy")
Make = Callable[[Path], None]
Key = tuple[str, str]


@dataclass(frozen=True)
class Artifact:
    """One generated file. `sources` gives its weights files, fetching them where needed."""

    model: str
    file: str
    make: Make
    sources: Callable[[], Sequence[Path]]
    optional: bool = False

    @property
    def target(self) -> Path:
        """Where it lies in the model repository."""
        return REPOSITORY / self.model / "1" / self.file

    @property
    def provenance_path(self) -> Path:
        """The JSON file beside it."""
        return self.target.with_name(f"{self.file}.json")

    def build(self) -> None:
        """Make, check and publish it. Raises ContractBroken, leaving what was there before."""
        with replacing(self.target) as partial:
            self.make(partial)
            if self.file.endswith(".onnx"):
                contract.check(REPOSITORY / self.model / "config.pbtxt", partial)
        with replacing(self.provenance_path) as partial:
            partial.write_text(json.dumps(self._provenance(), indent=1) + "\n")

    def up_to_date(self) -> bool:
        """Whether it exists unharmed, made by today's code from today's weights."""
        if not self.target.exists() or not self.provenance_path.exists():
            return False
        try:
            written = json.loads(self.provenance_path.read_text())
        except json.JSONDecodeError:
            return False
        made_of = self._made_of()
        return bool(
            written.get("sha256") == sha256(self.target)
            and all(written.get(key) == value for key, value in made_of.items())
        )

    def _made_of(self) -> dict[str, object]:
        """What decides its content."""
        return {
            "exporter_version": EXPORTER_VERSION,
            "exporter": _hashes(code_of(self.make)),
            "sources": _hashes(self.sources()),
        }

    def _provenance(self) -> dict[str, object]:
        facts: dict[str, object] = {
            "artifact": f"{self.model}/1/{self.file}",
            "sha256": sha256(self.target),
            "bytes": self.target.stat().st_size,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "tools": {name: version(name) for name in _TOOLS},
        }
        if self.file.endswith(".onnx"):
            facts["onnx"] = _versions(self.target)
        return facts | self._made_of()


def table(
    targets: Mapping[Key, Make],
    sources: Callable[[], Sequence[Path]],
    *,
    optional: bool = False,
) -> list[Artifact]:
    """Artifacts of an exporter's TARGETS that share their weights files."""
    return [
        Artifact(model, file, make, sources, optional) for (model, file), make in targets.items()
    ]


def all_artifacts() -> list[Artifact]:
    """Everything `python -m build` can make, in building order."""
    from build import sampler, vad
    from build.smollm import export as smollm
    from build.voice import export as voice
    from build.whisper import export as whisper

    made = table(vad.TARGETS, vad.sources) + table(whisper.TARGETS, whisper.sources)
    for key, make in voice.TARGETS.items():
        files = voice.SOURCES[key]
        made += table({key: make}, functools.partial(tuple[Path, ...], files))
    made += table(smollm.TARGETS, smollm.sources)
    made += table(sampler.TARGETS, sampler.sources)
    return made + table(smollm.PORTABLE, smollm.sources, optional=True)


def chosen(models: Iterable[str], *, optional: bool) -> list[Artifact]:
    """The artifacts of these models (all where none is named), opt-in ones only if asked for."""
    wanted = set(models)
    return [
        artifact
        for artifact in all_artifacts()
        if (not wanted or artifact.model in wanted) and (optional or not artifact.optional)
    ]


def _hashes(paths: Iterable[Path]) -> dict[str, str]:
    """Short path to sha256 of each file. Raises WeightsInvalid for one that is missing."""
    paths = list(paths)
    if missing := [str(path) for path in paths if not path.exists()]:
        raise WeightsInvalid(f"{', '.join(missing)}: not there; see `python -m build train`")
    return {_short(path): _digest(path, path.stat().st_mtime_ns) for path in paths}


@functools.cache
def _digest(path: Path, modified_ns: int) -> str:
    """sha256, computed once per version of a file."""
    return sha256(path)


def _short(path: Path) -> str:
    for root in (ROOT, cache_dir()):
        if path.is_relative_to(root):
            return str(path.relative_to(root))
    return str(path)


def _versions(path: Path) -> dict[str, Any]:
    model = onnx.load(path)
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    return {"ir": model.ir_version, "opsets": opsets}
