"""Triton model class of the AR loop."""

from python_backends.ar_loop.engines import BlsEngine, pool_bytes
from python_backends.ar_loop.loop import DecodeLoop
from python_backends.ar_loop.sequence import Task
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.converse import Converse
from python_backends.ar_loop.tasks.intone import Intone
from python_backends.ar_loop.tasks.transcribe import Transcribe
from python_backends.bridge import Board, ModelConfig, StageBackend, call, plugin
from python_backends.slot_engine.command import StepEngine
from python_backends.slot_engine.engine import SlotPoolEngine


class TritonPythonModel(StageBackend):
    """Continuous batching of the model's `task`."""

    def make_loop(self, config: ModelConfig) -> DecodeLoop:
        settings = config.settings(LoopSettings)
        task = _task(config, settings)
        row = Board().row(config.name)
        engine = _engine(config, settings, task)
        if held := pool_bytes(engine):
            self.meters.gauge("bytes", held)
        return DecodeLoop(task, engine, settings, publish=row.write, meters=self.meters)


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


def _engine(config: ModelConfig, settings: LoopSettings, task: Task) -> StepEngine:
    if settings.engine == "bls":
        return BlsEngine(settings.step_model, call, task.width)
    if plugin.is_path(settings.engine):
        engine: StepEngine = plugin.load(settings.engine)(config, settings)
        return engine
    folder = config.artefact("model.onnx", model=settings.step_model).parent
    return SlotPoolEngine(folder, slots=settings.slots, capacity=settings.capacity)
