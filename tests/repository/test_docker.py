"""deploy/docker says what exists, pins what it takes, and gives away no more than is needed."""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.__main__ import _parser
from deploy.backends import PYTHON_BACKENDS
from deploy.kubernetes.options import USER
from deploy.plan import Plan, find
from python_backends.sizes import byte_count
from tests.repository.configs import ROOT, models, parameters

FOLDER = ROOT / "deploy" / "docker"
DOCKERFILE = FOLDER / "Dockerfile"
GPU_IMAGE = "tristage-gpu:0.1.0"
ADDED = {"onnx", "tqdm"}
"""Packages, pinned in pyproject.toml, that the image has beside an extra, for `build tensorrt`."""

TARGETS = ("cpu", "gpu")


@cache
def instructions() -> list[tuple[str, str]]:
    """(instruction, its arguments), comments left out and lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    split = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name.upper(), " ".join(rest.split())) for name, _, rest in split]


def of(name: str) -> list[str]:
    return [rest for one, rest in instructions() if one == name]


@cache
def compose() -> dict[str, Any]:
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert isinstance(found, dict)
    return found


def service(name: str) -> dict[str, Any]:
    found = compose()["services"][name]
    assert isinstance(found, dict)
    return found


def copied() -> list[tuple[list[str], str]]:
    """(sources, target) of every COPY from the context."""
    words = [rest.split() for rest in of("COPY") if not rest.startswith("--from=")]
    return [(one[:-1], one[-1]) for one in words]


def test_the_linter_has_nothing_to_say() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    answer = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "")


def test_everything_that_is_copied_exists_and_reaches_the_builder() -> None:
    let_in = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for sources, _ in copied():
        for source in sources:
            assert (ROOT / source).exists(), source
            assert {source, source.split("/")[0]} & let_in, source


def test_artefacts_of_this_machine_stay_out() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert not [line for line in ignored if line.startswith(("!tests", "!out"))]
    assert "model_repository/*/1/*" in ignored


def test_our_backends_are_put_beside_the_native_ones() -> None:
    target = re.compile(r"/opt/tritonserver/backends/(\w+)/")
    found = {match[1]: source for source, to in copied() if (match := target.fullmatch(to))}
    ours = {path.parent.name for path in PYTHON_BACKENDS.glob("*/model.py")}
    assert set(found) == ours  # a stand-in would shadow a native one
    assert all(source == [f"python_backends/{name}/model.py"] for name, source in found.items())


def test_images_are_pinned_and_of_one_release() -> None:
    variables = dict(rest.split("=") for rest in of("ARG") if "=" in rest)
    images = [rest.split()[0] for rest in of("FROM")]
    assert [rest.split()[2] for rest in of("FROM")][1:] == list(TARGETS)
    for image in images:
        tag = image.rpartition(":")[2].replace("${TRITON}", variables["TRITON"])
        assert re.fullmatch(r"\d[\w.-]*", tag), image
    assert re.fullmatch(r"\d+(\.\d+){3}", variables["TENSORRT"])
    for one in compose()["services"].values():
        assert one["image"] == GPU_IMAGE


def test_packages_are_those_that_are_tested_here() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = {pin for extra in extras["optional-dependencies"].values() for pin in extra}
    *_, install = [rest for rest in of("RUN") if "pip install" in rest]
    assert "'.[launcher]'" in install
    added = {word for word in install.split() if re.fullmatch(r"[\w-]+==[\w.]+", word)}
    assert {word.split("==")[0] for word in added} == ADDED
    assert added <= pins


def command_of(target: str) -> argparse.Namespace:
    """The options that an image's command comes to."""
    words = json.loads(of("CMD")[TARGETS.index(target)])
    assert words[:3] == ["python", "-m", "deploy"]
    return _parser().parse_args(words[3:])


def test_each_image_starts_our_launcher() -> None:
    """The pod's, which an orchestrator gives another server of another plan; and one that serves
    everything from the engines."""
    pod = command_of("cpu")
    assert (pod.group in Plan.read(find(pod.file)).servers, pod.file) == (True, "one-server")
    serve = command_of("gpu")
    assert (serve.config_name, serve.model, serve.ports) == ("tensorrt", None, [8000, 8001, 8002])
    assert "TRISTAGE_TRITON=/opt/tritonserver" in of("ENV")[-1].split()
    assert pod.out == serve.out == Path("/run/tristage")


def test_engines_are_built_before_the_server_starts_and_never_by_it() -> None:
    assert service("engines")["command"][:4] == ["python", "-m", "build", "tensorrt"]
    assert service("server")["depends_on"] == {
        "engines": {"condition": "service_completed_successfully"}
    }
    assert "command" not in service("server")
    assert service("engines")["volumes"] == ["engines:/engines"]
    assert service("server")["volumes"] == ["engines:/engines:ro"]
    repository = service("engines")["command"][-1]
    assert command_of("gpu").own == [Path(repository)]


@pytest.mark.parametrize("name", ["engines", "server"])
def test_a_service_has_a_gpu_and_no_more_rights_than_it_needs(name: str) -> None:
    found = service(name)
    assert found["user"] == of("USER")[-1] == f"{USER}:{USER}"
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    [device] = found["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_the_server_tells_whether_it_is_ready_and_listens_on_this_host_alone() -> None:
    found = service("server")
    ready = "http://127.0.0.1:8000/v2/health/ready"
    assert ready in found["healthcheck"]["test"]
    assert ready in of("HEALTHCHECK")[0]
    assert all(port.startswith("127.0.0.1:") for port in found["ports"])


def test_shared_memory_holds_what_the_models_declare() -> None:
    regions = sum(byte_count(parameters(name).get("bytes_shm", "0")) for name in models())
    assert regions < 2 * 2**30
    assert service("server")["shm_size"] == "2gb"


def test_the_readme_says_that_nothing_of_it_has_been_run() -> None:
    assert "unverified" in (FOLDER / "README.md").read_text().lower()
