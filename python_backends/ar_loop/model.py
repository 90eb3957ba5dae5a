"""Triton model class of the AR loop."""

from python_backends.ar_loop.engines import BlsEngine
from python_backends.ar_loop.loop import DecodeLoop
from python_backends.ar_loop.sequence import Task
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.converse import Converse
from python_backends.ar_loop.tasks.intone import Intone
from python_backends.ar_loop.tasks.transcribe import Transcribe
from python_backends.bridge import Board, ModelConfig, StageBackend, call, plugin
from python_backends.scheduling.prefixes import Prefixes
from python_backends.slot_engine.command import StepEngine
from python_backends.slot_engine.engine import SlotPoolEngine
from python_backends.slot_engine.opening import open_engine
from python_backends.slot_engine.shelf import Shelf


class TritonPythonModel(StageBackend):
    """Continuous batching of the model's `task`."""

    def make_loop(self, config: ModelConfig) -> DecodeLoop:
        settings = config.settings(LoopSettings)
        task = _task(config, settings)
        row = Board().row(config.name)
        engines = _engines(config, settings, task)
        own = [engine for engine in engines if isinstance(engine, SlotPoolEngine)]
        if own:
            held = sum(engine.pools.nbytes for engine in own)
            self.meters.gauge("bytes", held)
            config.declared.check_kv(held + settings.session_bytes)
        token_bytes = own[0].pools.token_bytes if own else 1
        prefixes = Prefixes(settings.session_bytes, token_bytes)
        loop = DecodeLoop(
            task, engines, settings, publish=row.write, meters=self.meters, prefixes=prefixes
        )
        self.usage = loop.usage
        return loop


def _task(config: ModelConfig, settings: LoopSettings) -> Task:
    match settings.task:
        case "transcribe":
            return Transcribe.load(config, settings, call)
        case "converse":
            return Converse.load(config, settings)
        case "intone":
            return Intone.load(settings)
        case path:
            task: Task = plugin.load(path)(config, settings)
            return task


def _engines(config: ModelConfig, settings: LoopSettings, task: Task) -> list[StepEngine]:
    if settings.engine == "bls":
        return [BlsEngine(settings.step_model, call, task.width)]
    if plugin.is_path(settings.engine):
        return [plugin.load(settings.engine)(config, settings) for _ in range(settings.engines)]
    folder = config.artefact("model.onnx", model=settings.step_model).parent
    shelf = Shelf()
    chunk = max(settings.prefill_chunk, settings.lone_chunk, settings.join_tokens)
    return [
        open_engine(folder, settings, chunk=chunk, shelf=shelf) for _ in range(settings.engines)
    ]
