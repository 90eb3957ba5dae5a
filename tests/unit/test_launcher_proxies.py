"""A stage that is served elsewhere has a proxy: the same to its callers, and nothing behind it."""

from pathlib import Path

from tritonclient.grpc import model_config_pb2

from deploy.proxies import PROXY_BACKEND, has_control
from deploy.readiness import can_be_probed
from deploy.repositories import mirror, read_models, to_load, with_overrides, with_proxies
from deploy.settings import REPOSITORIES
from python_backends.bridge import ModelConfig
from python_backends.remote_stage.settings import RemoteSettings

CPU = model_config_pb2.ModelInstanceGroup.KIND_CPU


def test_a_proxy_takes_and_gives_what_its_stage_does_and_batches_nothing() -> None:
    models = read_models(REPOSITORIES, {})
    for name in ("think", "encode", "acoustic", "vocoder"):
        stage, proxy = models[name].config, models[name].as_proxy().config
        assert (proxy.name, proxy.backend) == (name, PROXY_BACKEND)
        assert list(proxy.input) == list(stage.input)
        assert list(proxy.output) == list(stage.output)
        assert proxy.max_batch_size == stage.max_batch_size
        assert proxy.model_transaction_policy == stage.model_transaction_policy
        assert [(group.kind, group.count) for group in proxy.instance_group] == [(CPU, 1)]
        assert not proxy.HasField("dynamic_batching")
        assert not proxy.default_model_filename
    assert models["vocoder"].config.HasField("dynamic_batching")


def test_the_backend_of_a_proxy_can_read_its_parameters() -> None:
    models = read_models(REPOSITORIES, {})
    for name, controlled in (("think", True), ("vocoder", False)):
        parameters = models[name].as_proxy().parameters
        config = ModelConfig(name, Path(), "1", parameters, ())
        assert config.settings(RemoteSettings).controlled == controlled


def test_a_proxy_brings_none_of_the_models_its_stage_calls() -> None:
    models = with_proxies(read_models(REPOSITORIES, {}), {"think", "encode"})
    loaded = to_load(models, ["turn"])
    assert {"think", "encode", "prosody", "vocoder"} <= set(loaded)
    assert not {"think_step", "asr_encoder"} & set(loaded)


def test_a_decoder_brings_the_encoder_that_it_may_ask_again() -> None:
    assert to_load(read_models(REPOSITORIES, {}), ["asr_decode"]) == [
        "asr_decode",
        "asr_encoder",
        "encode",
    ]


def test_a_run_has_folders_of_its_own_for_proxies(tmp_path: Path) -> None:
    overrides = {"think": {"slots": "4"}}
    models = read_models(REPOSITORIES, {})
    chosen = with_proxies(with_overrides(models, overrides), {"think"})
    views = mirror(chosen.values(), tmp_path, overrides)
    folder = tmp_path / "model_repository" / "think"
    assert not folder.is_symlink()
    assert [path.name for path in sorted(folder.iterdir())] == ["1", "config.pbtxt"]
    assert list((folder / "1").iterdir()) == []
    seen = read_models(views, {})
    assert seen["think"].is_proxy
    assert seen["think"].parameters["controlled"] == "true"
    assert seen["think"].config == models["think"].as_proxy().config
    assert (tmp_path / "model_repository" / "think_step").is_symlink()


def test_overrides_leave_the_models_they_were_made_from_alone() -> None:
    models = read_models(REPOSITORIES, {})
    before = models["think"].parameters["slots"]
    changed = with_overrides(models, {"think": {"slots": "99"}})
    assert changed["think"].parameters["slots"] == "99"
    assert models["think"].parameters["slots"] == before


def test_a_proxy_is_probed_only_if_it_answers_by_itself() -> None:
    models = read_models(REPOSITORIES, {})
    assert can_be_probed(models["think"].as_proxy().config)
    assert can_be_probed(models["vocoder"].config)
    assert not can_be_probed(models["vocoder"].as_proxy().config)
    assert has_control(models["turn"].config)
    assert not can_be_probed(models["turn"].config)
