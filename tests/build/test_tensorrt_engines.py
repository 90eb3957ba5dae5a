"""Engines are built through TensorRT's API, kept with their record, and refused when stale."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from build import fetch
from build.__main__ import main
from build.errors import EngineRefused
from build.onnx_graph import FLOAT, Graph
from build.tensorrt import adapter, budget, command, record, view
from build.tensorrt.profiles import Bounds, rebuild
from build.tensorrt.record import Key
from tests.build import fake_tensorrt

PROFILE = {"X": Bounds((1, 4), (4, 4), (8, 4))}
KEY = Key("vocoder", "ab" * 32, "fp32", [], "tensorrt", "10.8.0.43", "8.9")
ENGINE = b'[{"X": 1}]'


def nothing() -> onnx.ModelProto:
    return Graph("net").model(opset=17)


@pytest.fixture
def kit() -> adapter.Toolkit:
    return adapter.Toolkit.of(fake_tensorrt)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    path = tmp_path / "model-cc8.9.plan"
    path.write_bytes(ENGINE)
    record.write(path, KEY, {"declares": {}})
    return path


def test_an_engine_is_built_with_every_profile_for_the_gpu_that_is_named(
    kit: adapter.Toolkit, tmp_path: Path
) -> None:
    parsed = adapter.parsed_as_meant(kit, nothing())
    made = adapter.build(kit, parsed, [PROFILE, PROFILE], capability="8.9")
    profiles, capability = json.loads(made)
    assert profiles == [{"X": [[1, 4], [4, 4], [8, 4]]}] * 2
    assert capability == ["SM89", 0]


def test_a_gpu_that_the_library_cannot_build_for_is_told(kit: adapter.Toolkit) -> None:
    parsed = adapter.parse(kit, nothing())
    with pytest.raises(EngineRefused, match=r"compute capability 9\.0"):
        adapter.build(kit, parsed, [PROFILE], capability="9.0")


@pytest.mark.parametrize(
    ("held", "after"), [(None, b"t"), (b"known", b"knownt"), (b"broken", b"t")]
)
def test_the_timing_cache_is_read_and_written_and_a_broken_one_dropped(
    kit: adapter.Toolkit, tmp_path: Path, held: bytes | None, after: bytes
) -> None:
    timing = tmp_path / "timing.cache"
    if held is not None:
        timing.write_bytes(held)
    adapter.build(kit, adapter.parse(kit, nothing()), [PROFILE], timing=timing)
    assert timing.read_bytes() == after


def test_a_build_that_fails_says_what_tensorrt_said(
    kit: adapter.Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_tensorrt.Builder, "fails", True)
    with pytest.raises(EngineRefused, match="net: not built: no kernel"):
        adapter.build(kit, adapter.parse(kit, nothing()), [PROFILE])


def test_a_graph_that_is_not_parsed_says_why(
    kit: adapter.Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_tensorrt.OnnxParser, "parse", lambda self, model: False)
    with pytest.raises(EngineRefused, match="net: not parsed: no importer for Nonsense"):
        adapter.parse(kit, nothing())


def test_a_graph_that_lost_an_input_is_refused(kit: adapter.Toolkit) -> None:
    made = Graph("net")
    made.input("X", FLOAT, ["B"])
    with pytest.raises(EngineRefused, match="input X: FLOAT in the graph, not there"):
        adapter.parsed_as_meant(kit, made.model(opset=17))


@pytest.mark.parametrize(
    "garbage", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\0" * 64]
)
def test_what_is_no_engine_is_refused_with_what_tensorrt_said(
    kit: adapter.Toolkit, garbage: bytes
) -> None:
    """Public case J2."""
    with pytest.raises(EngineRefused, match=r"10\.8\.0\.43 read: .*magic tag"):
        adapter.activation_bytes(kit, garbage)


def test_an_engine_as_it_was_built_is_used(engine: Path) -> None:
    assert record.fault(engine, KEY) is None


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        (replace(KEY, graph_sha256="cd" * 32), "the graph has changed"),
        (replace(KEY, profiles=[{"X": [[1], [4], [16]]}]), "the profiles has changed"),
        (replace(KEY, version="10.9.0.34"), "TensorRT was 10.8.0.43, is 10.9.0.34"),
        (replace(KEY, capability="9.0"), "the GPU's compute capability was 8.9, is 9.0"),
        (replace(KEY, precision="fp16"), "the precision was fp32, is fp16"),
        (replace(KEY, library="tensorrt_rtx"), "the kind of TensorRT was tensorrt"),
        (replace(KEY, builder=2), "the builder has changed"),
    ],
)
def test_a_stale_engine_is_refused_with_the_command_that_mends_it(
    engine: Path, needed: Key, said: str
) -> None:
    """Public case J2."""
    found = record.fault(engine, needed)
    assert found is not None
    assert said in found
    assert found.endswith("Rebuild: python -m build tensorrt vocoder")


@pytest.mark.parametrize("garbage", [b"", b"version https://git-lfs", ENGINE[:-1] + b"!"])
def test_an_engine_that_is_not_what_was_built_is_refused(engine: Path, garbage: bytes) -> None:
    """Public case J2."""
    engine.write_bytes(garbage)
    assert "not the file that was built" in str(record.fault(engine, KEY))


def test_an_engine_without_a_record_or_no_engine_is_refused(engine: Path) -> None:
    record.beside(engine).write_text("{")
    assert "nothing says what it was made of" in str(record.fault(engine, KEY))
    engine.unlink()
    assert "there is no such engine" in str(record.fault(engine, KEY))


def test_what_an_engine_takes_is_told_as_parameters() -> None:
    needed = budget.declares(14_479_044, 5 * 2**20 + 1)
    assert needed == {"bytes_weights": "14MiB", "bytes_activation": "6MiB"}
    assert budget.short_of({"bytes_weights": "16MiB"}, needed) == [
        "bytes_activation is 0, 6MiB are needed"
    ]
    assert 'key: "bytes_activation" value { string_value: "6MiB" }' in budget.as_parameters(needed)
    assert budget.declares(1, None) == {"bytes_weights": "1MiB"}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a GPU and TensorRT, as far as the command can see; gives its repository."""
    monkeypatch.setenv(fetch.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(command, "_tensorrt", lambda: fake_tensorrt)
    monkeypatch.setattr(command, "device_capability", lambda: "8.9")
    monkeypatch.setattr(adapter, "complaints", lambda model, network: [])
    return tmp_path / "repository"


def test_engines_are_built_once_and_judged_afterwards(
    gpu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = ["tensorrt", "vocoder", "--repository", str(gpu)]
    assert main([*order, "--check"]) == 1
    assert "there is no such engine" in capsys.readouterr().err
    assert main(order) == 0
    assert 'key: "bytes_activation" value { string_value: "6MiB" }' in capsys.readouterr().out
    engine = gpu / "vocoder/1/model-cc8.9.plan"
    built = engine.stat().st_mtime_ns
    assert main([*order, "--check"]) == 0
    assert main(order) == 0
    assert engine.stat().st_mtime_ns == built
    assert (gpu / "vocoder/config.pbtxt").is_symlink()
    assert (gpu / "think").is_symlink()
    engine.write_bytes(b"")
    assert main([*order, "--check"]) == 1
    assert rebuild("vocoder") in capsys.readouterr().err
    assert main(order) == 0
    assert engine.stat().st_size > 0


def test_a_view_that_is_prepared_again_keeps_its_engines(tmp_path: Path) -> None:
    view.prepare(tmp_path, ["vocoder"])
    engine = tmp_path / "vocoder/1/model-cc8.9.plan"
    engine.write_bytes(ENGINE)
    view.prepare(tmp_path, ["vocoder"])
    assert engine.read_bytes() == ENGINE
    assert not engine.is_symlink()


def test_the_gpu_that_is_asked_is_the_first_that_is_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def answer(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.extend(command)
        return subprocess.CompletedProcess(command, 0, "8.9\n", "")

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert command.device_capability() == "8.9"
    assert asked[-1] == "--id=2"


def test_without_tensorrt_or_a_gpu_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(command.importlib, "import_module", missing)
    assert main(["tensorrt"]) == 1
    assert "TensorRT is not installed" in capsys.readouterr().err

    def failing(*_: object, **__: object) -> None:
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(subprocess, "run", failing)
    with pytest.raises(EngineRefused, match="built on the GPU they run on: nvidia-smi"):
        command.device_capability()
