"""The way of a turn through its stages, read from the ensemble that is its wiring.

The door walks it itself, step by step: inside an ensemble the server (2.51) passes no cancel on,
and when a step's process dies, it fails whoever is on the way there, or never answers them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from python_backends.errors import InvalidInput, StageFailed
from python_backends.peer import Outputs

HEARD = "HEARD"


@dataclass(frozen=True)
class Step:
    """One model. Names of the route's tensors by the model's own."""

    model: str
    takes: Mapping[str, str]
    gives: Mapping[str, str]

    def inputs(self, tensors: Outputs) -> Outputs:
        """What of the route's tensors the model is sent; what a caller left out is left out."""
        return {own: tensors[name] for own, name in self.takes.items() if name in tensors}

    def outputs(self, answer: Outputs) -> Outputs:
        """What the model answered, as tensors of the route."""
        return {name: answer[own] for own, name in self.gives.items() if own in answer}


@dataclass(frozen=True)
class Route:
    """Steps, each behind the one before. `gives`: tensors that an answer has."""

    steps: tuple[Step, ...]
    gives: tuple[str, ...]

    @classmethod
    def of(cls, config: Any) -> Self:
        """From the ModelConfig of an ensemble; StageFailed unless each step needs those before. One
        model is a route of one step."""
        if not config.ensemble_scheduling.step:
            return cls.alone(config)
        known = {tensor.name for tensor in config.input}
        steps = []
        for step in config.ensemble_scheduling.step:
            takes, gives = dict(step.input_map), dict(step.output_map)
            missing = set(takes.values()) - known
            if missing:
                raise StageFailed(
                    f"step {step.model_name} of {config.name} takes {sorted(missing)}, which no "
                    "step before it gives"
                )
            known.update(gives.values())
            steps.append(Step(step.model_name, takes, gives))
        return cls(tuple(steps), tuple(tensor.name for tensor in config.output))

    @classmethod
    def alone(cls, config: Any) -> Self:
        """A model by itself."""
        takes = {tensor.name: tensor.name for tensor in config.input}
        gives = {tensor.name: tensor.name for tensor in config.output}
        return cls((Step(config.name, takes, gives),), tuple(gives))

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(step.model for step in self.steps)

    def from_words(self) -> tuple["Route", str]:
        """The way of a turn whose words are known already: from the first step that takes HEARD on,
        and the name of that tensor here. InvalidInput when no step takes any."""
        for number, step in enumerate(self.steps):
            if HEARD in step.takes:
                return Route(self.steps[number:], self.gives), step.takes[HEARD]
        raise InvalidInput("no stage of this server takes HEARD; AUDIO is accepted")

    def answer(self, tensors: Outputs) -> Outputs:
        """The tensors of an answer, out of all that have come together on the way to it."""
        return {name: tensors[name] for name in self.gives if name in tensors}
