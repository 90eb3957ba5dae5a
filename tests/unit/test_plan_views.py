"""What each server of a plan loads, from the real repositories."""

import pytest

from deploy.plan import PLANS, Plan
from deploy.plan_check import read
from deploy.repositories import Model
from deploy.views import called_apart, homes, stages, view_of, views

LISTENS = {"encode", "asr_encoder", "asr_decode"}
SPEAKS = {"prosody", "acoustic", "acoustic_condition", "acoustic_step", "vocoder"}
THINKS = {"think"}
WIRING = {"listen", "live", "turn", "voice_turn", "transcribe", "speak"}
VADS = {"vad", "vad_step"}
CALLERS = ["turn", "transcribe", "speak", "vad", "listen", "live"]
IN_ORDER = ["encode", "asr_decode", "think", "prosody", "acoustic", "vocoder", "vad", "vad_step"]
LOADED: dict[str, dict[str, tuple[set[str], set[str]]]] = {
    "one-server": {"all": (WIRING | VADS | LISTENS | THINKS | SPEAKS, set())},
    "three-servers": {
        "listen": (LISTENS, set()),
        "think": (THINKS, set()),
        "speak": (WIRING | VADS | SPEAKS, {"encode", "asr_decode", "think"}),
    },
    "stages-apart": {
        "front": (WIRING | VADS, set(IN_ORDER) - VADS),
        "listen": (LISTENS, set()),
        "think": (THINKS, set()),
        "speak": (SPEAKS, set()),
    },
}


@pytest.mark.parametrize("name", LOADED)
def test_servers_of_shipped_plans_load_their_part_and_proxies_for_the_rest(name: str) -> None:
    plan = Plan.read(PLANS / f"{name}.yaml")
    found = views(plan, read(plan))
    assert {server: (set(view.own), set(view.proxies)) for server, view in found.items()} == (
        LOADED[name]
    )
    assert called_apart(found) == set().union(*(proxies for _, proxies in LOADED[name].values()))


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    return read(Plan.read(PLANS / "one-server.yaml"))


def plan(**servers: list[str]) -> Plan:
    return Plan.model_validate(
        {"front": "front", "servers": {name: {"stages": some} for name, some in servers.items()}}
    )


def test_stages_come_in_the_order_that_turns_reach_them(models: dict[str, Model]) -> None:
    assert stages(models, CALLERS) == IN_ORDER


def test_a_stage_that_no_server_names_is_in_the_front(models: dict[str, Model]) -> None:
    apart = plan(front=[], think=["think"])
    assert homes(apart, models) == {**dict.fromkeys(IN_ORDER, "front"), "think": "think"}


def test_a_decoder_apart_from_its_encoder_calls_it_through_a_proxy(
    models: dict[str, Model],
) -> None:
    """Which it calls by name, when a window is doubtful."""
    found = views(plan(front=[], decode=["asr_decode"]), models)
    assert found["decode"].own == ("asr_decode",)
    assert found["decode"].proxies == ("encode",)
    assert "encode" in found["front"].own


def test_a_model_that_a_stage_calls_may_have_a_server_of_its_own(models: dict[str, Model]) -> None:
    found = views(plan(front=[], far=["asr_encoder"]), models)
    assert found["front"].proxies == ("asr_encoder",)
    assert found["far"].own == ("asr_encoder",)


def test_one_stage_of_a_server_alone_reaches_its_siblings_through_proxies(
    models: dict[str, Model],
) -> None:
    apart = plan(front=[], listen=["encode", "asr_decode"])
    view = view_of(apart, models, "listen", homes(apart, models), ["asr_decode"])
    assert (view.stages, view.own, view.proxies) == (
        ("asr_decode",),
        ("asr_decode",),
        ("encode",),
    )
