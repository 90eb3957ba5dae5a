"""The command line of a cluster, as far as it needs no server."""

import os
from pathlib import Path

import pytest

from deploy.__main__ import main
from deploy.cluster.files import ClusterState, ServerState, state_path
from deploy.processes import start_time

PLAN = "{front: front, servers: {front: {}, b: {stages: [%s], device: d}}, devices: {d: {}}}"


def written(folder: Path, stage: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(PLAN % stage)
    return str(path)


def test_a_plan_is_shown_with_what_runs_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["plan", written(tmp_path, "think")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("plan mine: callers call turn, transcribe, speak, vad")
    (front,) = [line for line in shown if line.startswith("front (front)")]
    assert "encode, asr_decode, prosody, acoustic, vocoder, vad" in front
    (other,) = [line for line in shown if line.startswith("b ")]
    assert other.split()[1:3] == ["1", "d"]
    assert shown[-1] == "can work"


def test_a_plan_that_cannot_work_is_shown_with_the_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["plan", written(tmp_path, "vad")]) == 1
    assert "'vad' keeps sequences" in capsys.readouterr().out
    assert main(["plan", "nowhere"]) == 1
    assert "plans: one-server, stages-apart, three-servers" in capsys.readouterr().err


def test_where_nothing_is_up_everybody_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)]
    assert main([*out, "status"]) == 1
    assert main([*out, "down"]) == 0
    assert capsys.readouterr().out == "nothing is up\n" * 2
    assert main([*out, "scale", "think=2"]) == 1
    assert capsys.readouterr().err == "error: nothing is up\n"


def left_behind(out: Path, name: str, *, started: int) -> Path:
    """The state of a cluster whose one server does not answer."""
    address = "127.0.0.1:9"
    one = ServerState("front-1", "front", ("vad",), (), None, address, address, address, "down")
    path = state_path(out, name)
    ClusterState("mine", "/mine.yaml", "front", os.getpid(), started, "/nowhere", (one,)).write(
        path
    )
    return path


def test_a_cluster_whose_supervisor_is_gone_is_told_and_cleared_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = left_behind(tmp_path, "mine", started=1)
    out = ["--out", str(tmp_path)]
    assert main([*out, "status", "mine"]) == 1
    shown = capsys.readouterr().out
    assert "its supervisor is gone" in shown
    assert "silent" in shown
    assert main([*out, "scale", "think=2"]) == 1
    assert main([*out, "down", "mine"]) == 0
    assert not path.exists()


def test_one_of_several_clusters_has_to_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = start_time(os.getpid())
    assert started is not None
    for name in ("mine", "mine@think", "yours"):
        left_behind(tmp_path, name, started=started)
    out = ["--out", str(tmp_path)]
    assert main([*out, "scale", "think=2"]) == 1
    assert "several are up, name one: mine, mine@think, yours" in capsys.readouterr().err
    assert main([*out, "scale", "think=2", "yours"]) == 1
    assert "does not listen at /nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["think", "think=", "=2", "think=two", "think=-1"])
def test_a_scale_is_a_stage_and_a_number(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["scale", target])
    assert f"{target!r} is not STAGE=N" in capsys.readouterr().err
