"""Every command of the runbook is one that there is, with options that it takes."""

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from deploy.kubernetes.groups import APP, name_of
from deploy.plan import Plan

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs" / "runbook.md"
MAKEFILE = ROOT / "Makefile"
SYMPTOMS = (
    *("slow-at-64", "first-audio-late", "audio-gaps", "oom", "refused", "stage-dead", "leak"),
)
PARSERS = {
    "deploy": "deploy.__main__",
    "loadtest": "loadtest.__main__",
    "loadtest.operate.practice": "loadtest.operate.practice",
    "loadtest.operate": "loadtest.operate.__main__",
}
PLAIN = ("cp", "curl", "kill", "kubectl", "mkdir")
"""Commands of the system."""

MOST_LINES = 225


def blocks() -> list[str]:
    """Those that are to be typed."""
    return re.findall(r"```sh\n(.*?)```", RUNBOOK.read_text(), re.S)


def commands() -> Iterator[str]:
    """Their lines."""
    for block in blocks():
        yield from (line for line in block.replace("\\\n", " ").splitlines() if line.strip())


def parser_of(module: str) -> ArgumentParser:
    loaded = import_module(PARSERS[module])
    if module == "loadtest.operate":
        bench: ArgumentParser = loaded.BENCH._parser()
        return bench
    make: Callable[[], ArgumentParser] = loaded._parser
    return make()


@pytest.mark.parametrize("command", list(commands()))
def test_a_command_is_one_that_there_is(command: str) -> None:
    words = shlex.split(command.split(" | ")[0], comments=True)
    if words[0] == "make":
        assert f"\n{words[1]}:" in MAKEFILE.read_text()
    elif words[0].endswith("python"):
        assert words[1] == "-m"
        parser_of(words[2]).parse_args([word for word in words[3:] if word != "&"])
    else:
        assert words[0] in PLAIN


def test_a_plan_is_up_before_it_is_scaled() -> None:
    scaling = [block for block in blocks() if " -m deploy scale " in block]
    assert scaling
    for block in scaling:
        assert " -m deploy up " in block.partition(" -m deploy scale ")[0]


def test_what_is_asked_of_a_cluster_is_what_its_manifests_have() -> None:
    plan = Plan.read(ROOT / "deploy" / "plans" / "stages-apart.yaml")
    names = {name_of(server) for server in plan.servers}
    asked = [shlex.split(command) for command in commands() if command.startswith("kubectl ")]
    assert asked
    for words in asked:
        assert words[1:3] == ["-n", APP]
        assert {word for word in words if "tristage-" in word} <= {
            *names,
            *(f"deployment/{name}" for name in names),
        }


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_symptom_has_a_section_with_commands(symptom: str) -> None:
    section = re.split(r"^## ", RUNBOOK.read_text(), flags=re.M)
    (found,) = [one for one in section if one.startswith(f"{symptom}\n")]
    assert "```sh\n" in found
    for part in ("Looks like", "Provoke", "Cure", "Cured"):
        assert f"**{part}" in found, f"{symptom} lacks {part}"


def test_it_can_be_read_at_night() -> None:
    assert len(RUNBOOK.read_text().splitlines()) <= MOST_LINES


def test_it_names_metrics_that_there_are() -> None:
    told = (ROOT / "python_backends" / "bridge" / "figures.py").read_text()
    names = set(re.findall(r"tristage_([a-z_]+?)(?:_sum|_count)?\b", RUNBOOK.read_text()))
    assert {name for name in names if f'"{name}"' not in told} == set()
