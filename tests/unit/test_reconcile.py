"""What models declare is held against what there is, before and after they are loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import __main__ as deploy
from deploy import budget, load, memory, reconcile
from deploy.budget import SERVER_BYTES, TRITONSERVER, model_bytes, refuse_over
from deploy.errors import BytesUnfit, RepositoryError
from deploy.launcher import Server
from deploy.memory import machine_bytes, private_bytes, region_bytes
from deploy.processes import SHARED_MEMORY
from deploy.reconcile import Row, table
from deploy.repositories import (
    Model,
    read_models,
    to_load,
    with_overrides,
    with_proxies,
)
from deploy.settings import REPOSITORIES, Settings
from python_backends.declared import Declared
from python_backends.sizes import byte_count, told_bytes

MIB = 2**20


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return read_models(REPOSITORIES, {})


def test_models_that_do_not_fit_are_refused_and_everyones_bytes_are_named(
    models: dict[str, Model],
) -> None:
    loads = to_load(models)
    total = SERVER_BYTES + sum(model_bytes(models[name], models) for name in loads)
    refuse_over(total, loads, models)
    with pytest.raises(BytesUnfit) as caught:
        refuse_over(total - 1, loads, models)
    told = str(caught.value)
    assert f"the models need {told_bytes(total)}" in told
    assert f"{TRITONSERVER} {told_bytes(SERVER_BYTES)}" in told
    for name in loads:
        if models[name].config.platform != "ensemble":
            assert f"{name} {told_bytes(model_bytes(models[name], models))}" in told


def test_a_server_that_does_not_fit_starts_no_process_and_leaves_nothing(tmp_path: Path) -> None:
    server = Server(Settings(out=tmp_path, bytes=MIB))
    with pytest.raises(BytesUnfit, match=r"think 9\d\d MiB"):
        server.start()
    assert not server.alive
    assert list(tmp_path.glob("run-*")) == []


def test_the_command_line_says_so_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy.main(["--out", str(tmp_path), "serve", "--bytes", "1GiB"]) == 1
    assert "and there are 1 GiB: acoustic " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        deploy.main(["serve", "--bytes", "much"])
    assert "a size is a number with one of" in capsys.readouterr().err


def test_other_parameters_need_other_bytes(models: dict[str, Model]) -> None:
    before = model_bytes(models["think"], models)
    halved = with_overrides(models, {"think": {"slots": "4", "session_bytes": "0"}})
    pool = byte_count(models["think"].parameters["bytes_kv_token"]) * 768 * 8
    assert before - model_bytes(halved["think"], halved) == pool // 2 + 256 * MIB
    wrong = with_overrides(models, {"think": {"bytes_shm": "much"}})
    with pytest.raises(RepositoryError, match="'bytes_shm' is 'much'"):
        model_bytes(wrong["think"], wrong)


def test_a_proxy_takes_a_process_and_what_is_on_its_way_to_the_stage(
    models: dict[str, Model],
) -> None:
    seen = with_proxies(models, ["think", "vad"])
    process, stage = byte_count("36MiB"), models["think"].parameters
    on_its_way = byte_count(stage["bytes_requests"]) + byte_count(stage["bytes_shm"])
    assert model_bytes(seen["think"], seen) == process + on_its_way
    assert model_bytes(seen["vad"], seen) == process + 2 * MIB


def test_artefacts_count_of_a_model_that_declares_nothing(
    models: dict[str, Model], tmp_path: Path
) -> None:
    given = dict(models)
    for name, size in (("think", 100), ("think_step", 4000)):
        folder = tmp_path / name
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "weights").write_bytes(bytes(size))
        config = type(models[name].config)()
        config.CopyFrom(models[name].config)
        for key in [key for key in config.parameters if key.startswith("bytes_")]:
            del config.parameters[key]
        given[name] = Model(name, folder, folder / "config.pbtxt", config)
    twice = with_overrides(given, {"think": {"engines": "2"}})
    assert model_bytes(twice["think"], twice) == 100 + 2 * 4000


def test_the_least_limit_of_the_cgroups_above_is_what_there_is(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "memory.max").write_text("4096\n")
    (root / "a" / "b" / "memory.max").write_text("max\n")
    own.write_text("0::/a/b\n")
    assert machine_bytes(own, root) == 4096
    (root / "memory" / "c").mkdir(parents=True)
    (root / "memory" / "c" / "memory.limit_in_bytes").write_text("2048\n")
    own.write_text("5:memory:/c\n4:cpu:/a\n0::/a/b\n")
    assert machine_bytes(own, root) == 2048
    whole = machine_bytes(tmp_path / "missing", root)
    assert whole == memory.psutil.virtual_memory().total


def test_private_pages_count_though_they_are_gone_and_the_region_that_is_named() -> None:
    prefix = f"tristage-test-{os.getpid()}-"
    region = SHARED_MEMORY / f"{prefix}region"
    script = "import sys; b'1' * (32 * 2**20); print(); sys.stdin.read()"
    command = [sys.executable, "-c", script, region.name]
    try:
        region.write_bytes(b"1" * MIB)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert 32 * MIB < private_bytes(process.pid) < 64 * MIB
            assert region_bytes(process.pid, prefix) == MIB
            assert region_bytes(process.pid, "others-") == 0
            process.communicate()
        assert private_bytes(process.pid) == region_bytes(process.pid, prefix) == 0
    finally:
        region.unlink()


def row(name: str, measured: int) -> Row:
    return Row(name, Declared(process=60 * MIB, kv=40 * MIB), measured * MIB)


@pytest.mark.parametrize(
    ("name", "measured", "fits"),
    [
        ("think", 69, False),
        ("think", 70, True),
        ("think", 100, True),
        ("think", 101, False),
        (TRITONSERVER, 1, True),
        (TRITONSERVER, 101, False),
    ],
)
def test_a_stage_takes_what_it_declares_and_not_much_less(
    name: str, measured: int, fits: bool
) -> None:
    assert row(name, measured).fits is fits


def test_the_table_has_a_line_for_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    console = deploy.Console(width=120)
    console.print(table([row("think", 80), row("vad", 7)]))
    told = capsys.readouterr().out.splitlines()
    assert told[0].split()[:4] == ["MiB", "process", "weights", "kv"]
    assert told[1].split() == ["think", "60", "-", "40", "-", "-", "-", "100", "80", "0.80"]


def test_the_command_writes_what_it_found_and_fails_where_it_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"run-1": [row("think", 80)]}
    monkeypatch.setattr(deploy, "as_they_are", lambda out: found)
    arguments = ["bytes", "--running", "--json", str(tmp_path / "found.json")]
    assert deploy.main(arguments) == 0
    told = json.loads((tmp_path / "found.json").read_text())["run-1"]["think"]
    assert told["declared"]["kv"] == 40 * MIB
    assert told["measured_by_declared"] == 0.8
    found["run-1"] = [row("think", 80), row("vad", 20)]
    assert deploy.main(arguments) == 1
    assert "measured / declared is not 0.7 to 1.0: vad" in capsys.readouterr().err
    found.clear()
    assert deploy.main(arguments) == 1
    assert "no server runs" in capsys.readouterr().err


def test_the_load_reaches_every_model_that_callers_or_stages_give_the_largest_work(
    models: dict[str, Model],
) -> None:
    sent = [request for group in load.largest(to_load(models)) for request in group]
    for request in sent:
        known = {tensor.name for tensor in models[request.model_name].config.input}
        assert {tensor.name for tensor in request.inputs} <= known
    assert {request.model_name for request in sent} == {
        *("think", "turn", "transcribe", "encode", "asr_encoder", "speak"),
        *("prosody", "acoustic", "vocoder", "vad", "listen", "live"),
    }
    alone = [request.model_name for group in load.largest(["encode"]) for request in group]
    assert set(alone) == {"encode"}
    (behind,) = load.largest(["encode", "asr_encoder"])
    assert [request.model_name for request in behind] == ["asr_encoder", *alone]


def test_watched_processes_are_known_at_their_most(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([5, 9, 7])
    monkeypatch.setattr(reconcile, "stubs", lambda pid, models: [])
    monkeypatch.setattr(reconcile, "private_bytes", lambda pid: next(sizes))
    watched = reconcile.Watch(1, {}, "prefix-")
    for _ in range(3):
        watched.look()
    (own,) = watched.rows()
    assert (own.name, own.measured, own.declared.total) == (TRITONSERVER, 9, budget.SERVER_BYTES)
