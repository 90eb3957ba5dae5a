"""What runs where: a deployment.yaml, read strictly.

::

    front: listen                      # the server that callers talk to
    models: [turn, transcribe]         # what they may call; default: turn, transcribe, speak, vad
    repositories: [my_models]          # default: this project's; relative to this file
    backends: [my_backends]            # more folders of Python-based backends
    config_name: served                # take configs/served.pbtxt of a model where there is one
    servers:
      listen: {stages: [encode, asr_decode], device: gpu0}
      think: {stages: [think], device: gpu1, replicas: 2, host: 10.0.0.2,
              ports: {http: 8000, grpc: 8001, metrics: 8002},
              environment: {OMP_NUM_THREADS: 2}, arguments: [--log-verbose=1]}
    devices:
      gpu0: {gpu: 0, cores: [0, 1], bytes: 8GiB}
      gpu1: {gpu: 1}
    stages:
      encode: {window_ms: 6, bytes: 512MiB}   # parameters of its config.pbtxt
    remote: {silence_ms: 30000}               # of the proxies that stand for stages elsewhere
    tls: {certificate: server.pem, key: server.key}   # gRPC of all servers; callers: ca.pem asks
                                              # callers for certificates too

A stage that no server names is served by the front. Whether a plan can work: `plan_check`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import yaml  # type: ignore[import-untyped]
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
)

from deploy.errors import PlanError
from deploy.plan_values import scalar_text
from deploy.processes import LOCALHOST
from deploy.repositories import Model, read_models
from deploy.settings import REPOSITORIES, Ports
from deploy.tls import Tls
from python_backends.sizes import byte_count

PLANS = Path(__file__).parent / "plans"
DEFAULT = "one-server"
PORT_STEP = 10
"""Replica n listens on the ports of its server's plan and n - 1 times as many more."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*(-[a-z][a-z0-9_]*)*$")]
"""Replicas are named <server>-<number>, so no name ends in a number after a dash."""

Text = Annotated[str, BeforeValidator(scalar_text)]
Bytes = Annotated[int, BeforeValidator(byte_count)]
Port = Annotated[int, Field(ge=1, le=65535)]


class Strict(BaseModel):
    """Unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PortsPlan(Strict):
    """Ports of the first replica of a server."""

    http: Port
    grpc: Port
    metrics: Port


class ServerPlan(Strict):
    """A tritonserver, or several alike."""

    stages: list[str] = []
    device: str | None = None
    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    host: Annotated[str, Field(min_length=1)] = LOCALHOST
    ports: PortsPlan | None = None
    environment: dict[str, Text] = {}
    arguments: list[str] = []

    def ports_of(self, number: int) -> Ports | None:
        """Of the replica with this number, counted from 1; None when any will do."""
        if self.ports is None:
            return None
        step = PORT_STEP * (number - 1)
        return Ports(self.ports.http + step, self.ports.grpc + step, self.ports.metrics + step)


class DevicePlan(Strict):
    """What servers compute on: a GPU by its index, CPU cores, and how much memory they may fill."""

    gpu: Annotated[int, Field(ge=0)] | None = None
    cores: list[Annotated[int, Field(ge=0)]] = []
    bytes: Bytes | None = None


class StagePlan(Strict):
    """Parameters of a model's config.pbtxt, and what a plan alone knows of it."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Text] = Field(init=False)

    engines: Annotated[int, Field(ge=1)] = 1
    bytes: Bytes = 0
    """The memory it takes; what its artefacts take counts where that is more."""

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the config, `engines` aside."""
        return dict(self.__pydantic_extra__)


class TlsPlan(Strict):
    """PEM files, beside the plan where they are relative: see deploy.tls.Tls."""

    certificate: str
    key: str
    callers: str | None = None


class Plan(Strict):
    """A deployment."""

    front: Name
    servers: dict[Name, ServerPlan]
    models: list[str] = ["turn", "transcribe", "speak", "vad", "listen", "live"]
    repositories: list[str] = [str(path) for path in REPOSITORIES]
    own: list[str] = []
    """Repositories whose models replace those of the same name."""

    backends: list[str] = []
    config_name: str | None = None
    devices: dict[Name, DevicePlan] = {}
    stages: dict[str, StagePlan] = {}
    remote: dict[str, Text] = {}
    """Parameters of every proxy: see python_backends/remote_stage/settings.py."""

    tls: TlsPlan | None = None
    """One certificate for all servers; None: gRPC in plaintext."""

    _path: Path = PrivateAttr(default=Path("plan.yaml"))

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a YAML file. PlanError names the file, the places in it, and what is accepted."""
        try:
            given = yaml.load(path.read_text(), _OnceLoader)
        except OSError as fault:
            shipped = ", ".join(sorted(plan.stem for plan in PLANS.glob("*.yaml")))
            raise PlanError(f"{path} cannot be read: {fault.strerror}; plans: {shipped}") from fault
        except (yaml.YAMLError, UnicodeDecodeError) as fault:
            raise PlanError(f"{path} is not YAML: {fault}") from fault
        try:
            plan = cls.model_validate(given if given is not None else {})
        except ValidationError as fault:
            raise PlanError("\n".join(f"{path}: {line}" for line in _told(fault))) from fault
        plan._path = path
        return plan

    @property
    def name(self) -> str:
        """Of the file it was read from; "plan" when it was made otherwise."""
        return self._path.stem

    @property
    def path(self) -> Path:
        return self._path

    def models_by_name(self) -> dict[str, Model]:
        """Of its repositories, with the parameters of their own configs. RepositoryError when they
        cannot be read."""
        repositories, own = self.folders(self.repositories), self.folders(self.own)
        return read_models(repositories, {}, self.config_name, own)

    def folders(self, given: Sequence[str]) -> list[Path]:
        """`repositories`, `own` or `backends`: relative ones are beside the plan."""
        return [(self._path.parent / folder).resolve() for folder in given]

    def tls_files(self) -> Tls | None:
        """What `tls` names."""
        if self.tls is None:
            return None
        beside, callers = self._path.parent, self.tls.callers
        return Tls(
            beside / self.tls.certificate,
            beside / self.tls.key,
            beside / callers if callers else None,
        )

    def overrides(self) -> dict[str, dict[str, str]]:
        """Model -> parameter -> value, as `deploy.settings.Settings` takes them."""
        given = {
            name: stage.parameters | ({"engines": str(stage.engines)} if stage.engines > 1 else {})
            for name, stage in self.stages.items()
        }
        return {name: parameters for name, parameters in given.items() if parameters}


def find(given: str | None) -> Path:
    """The file of a plan: a path, the name of a shipped one, or none: deployment.yaml of this
    folder where there is one, else the plan with one server."""
    here = Path("deployment.yaml")
    if given is None and here.exists():
        return here
    shipped = PLANS / f"{given or DEFAULT}.yaml"
    return shipped if given is None or (shipped.exists() and "/" not in given) else Path(given)


class _OnceLoader(yaml.SafeLoader):  # type: ignore[misc]
    """yaml.safe_load, but a key that comes twice is refused; YAML itself would take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {str(key) for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"found {', '.join(sorted(twice))} twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


def _told(fault: ValidationError) -> Iterator[str]:
    """One line for each thing that is wrong: its place, and what is accepted there."""
    for error in fault.errors():
        place = ".".join(str(part) for part in error["loc"] if part != "[key]") or "the file"
        if error["type"] == "extra_forbidden":
            known = ", ".join(_schema_at(error["loc"][:-1]).model_fields)
            yield f"{place}: unknown; accepted: {known}"
        elif error["type"] == "missing":
            yield f"{place}: missing"
        elif error["type"] == "string_pattern_mismatch":
            yield f"{place}: names are small letters, digits and _, parts joined by - ({PATTERN})"
        else:
            reason = str(error["msg"]).removeprefix("Value error, ")
            yield f"{place}: {reason[:1].lower()}{reason[1:]}, not {error['input']!r}"


PATTERN = "no number after a -, which is how replicas are named"


def _schema_at(place: Sequence[str | int]) -> type[Strict]:
    """The part of the schema that a place in the file is held to."""
    match list(place):
        case ["servers", _]:
            return ServerPlan
        case ["servers", _, "ports"]:
            return PortsPlan
        case ["devices", _]:
            return DevicePlan
        case ["tls"]:
            return TlsPlan
        case _:
            return Plan
