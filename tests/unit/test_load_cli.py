from pathlib import Path

import pytest

from loadtest import __main__ as cli
from loadtest.load.fake_server import Script, serving


def test_a_run_is_made_and_summed_up_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Public case L7: the command of loadtest/README.md."""
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text("0.1\n0.2\n9\n")
    with serving(Script(chunks=2, first_s=0.01, gap_s=0.01)) as address:
        load = ["--trace", "trace.csv", "--seconds", "1", "--warm-up", "0", "--out", "runs"]
        assert cli.main(["run", "--address", address, "--model", "emu_turn", *load]) == 0
    assert cli.main(["summary", "runs/emu_turn-trace"]) == 0
    assert capsys.readouterr().out.count("2 of 2 turns answered") == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["summary", "no-such-run"], "no-such-run"),
        (["run", "--model", "emu_turn", "--people", "0"], "at least one person"),
        (["run", "--model", "emu_turn", "--rate", "1", "--trace", "a.csv"], "not both"),
    ],
)
def test_wrong_input_is_answered_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
