"""Triton model class of a `think` whose LLM is served elsewhere."""

import os
from dataclasses import replace

from python_backends.bridge import Loop, ModelConfig, StageBackend
from python_backends.served_llm.loop import ServedLoop
from python_backends.served_llm.settings import URL_VARIABLE, ServedSettings


class TritonPythonModel(StageBackend):
    """The endpoint need not be there when the model loads, nor to answer a probe."""

    def make_loop(self, config: ModelConfig) -> Loop:
        settings = config.settings(ServedSettings)
        if url := os.environ.get(URL_VARIABLE):
            settings = replace(settings, base_url=url)
        system = settings.system
        if settings.system_file:
            system = config.artefact(settings.system_file).read_text().strip()
        return ServedLoop(settings, system, _key(settings.api_key_env), self.meters)


def _key(variable: str) -> str:
    """The API key; ValueError when the environment has none under this name."""
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise ValueError(f"api_key_env names {variable}, and the environment has no key there")
    return key
