"""Whole runs: people in front of a monolith or of the stages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from loadtest.baselines.monolith import rules
from loadtest.baselines.monolith.room import Limits
from loadtest.device.profile import Profile
from loadtest.sim.clock import Clock, Device
from loadtest.sim.costs import Costs
from loadtest.sim.figures import Figures, measure
from loadtest.sim.monolith import Monolith
from loadtest.sim.people import People, Talk
from loadtest.sim.speech import Acoustic, Vocoder
from loadtest.sim.stages import IGNORE, Consideration, Encoder, Place, Steps


@dataclass(frozen=True)
class Crowd:
    """How many people there are, when they begin, and which part of their time is measured."""

    people: int
    stagger_s: float = 0.0
    """They begin evenly spread over this time; 0: together, as in the sketch."""

    warm_up_s: float = 20.0
    measured_s: float = 60.0


@dataclass(frozen=True)
class Knobs:
    """What may differ from the profile's own monolith; None takes the profile's value."""

    max_running: int | None = None
    encoder_batch: int | None = None
    gap_hidden: bool = False

    def limits(self, profile: Profile) -> Limits:
        """The profile's limits with these in their place."""
        own = profile.monolith
        return Limits(
            max_running=self.max_running or own.max_running,
            encoder_batch=self.encoder_batch or own.encoder_batch,
            admissions_per_round=own.admissions_per_round,
        )


TUNED = Knobs(max_running=64, encoder_batch=8, gap_hidden=True)


@dataclass(frozen=True)
class Staging:
    """How the stages are run."""

    encoder_batch: int | None = None
    """None: the profile's."""

    consideration: Consideration = IGNORE
    encoder_apart: bool = False
    speech_apart: bool = False
    """On devices of their own."""

    speak_replicas: int = 1
    """The first where speaking is, each further one on a device of its own."""

    join_at_once: bool = True
    """False: at most one newcomer per step, as a batch does whose prompts are long."""

    patience_s: float = 0.5
    """After this wait a later piece ranks with first ones; 0.5 s is the product's."""

    wakeup_ms: float = 0.25
    """Fitted to the sketch's single person: 1.31 turns/s, where device time alone gives 1.37."""


AS_IS = Knobs()
SHARED = Staging()


def monolith(profile: Profile, crowd: Crowd, knobs: Knobs = AS_IS, speed: float = 1.0) -> Figures:
    """People in front of the profile's monolith, diffusion or not."""
    clock, device = Clock(), Device()
    kind = "locked" if "acoustic" in profile.stages else "steps"
    rule = rules.make(kind, profile, _think_steps(profile), knobs.limits(profile))
    system = Monolith(clock, rule, Costs(profile, speed), device, gap_hidden=knobs.gap_hidden)
    system.people = People(clock, crowd.people, system.send, crowd.stagger_s)
    return _figures(clock, system.people, [device], profile, crowd)


def stages(
    profile: Profile, crowd: Crowd, staging: Staging = SHARED, speed: float = 1.0
) -> Figures:
    """People in front of the profile's stages; `busy` is of the device of thinking."""
    clock, shared = Clock(), Device()
    encoding = Device() if staging.encoder_apart else shared
    speaking = [Device() if staging.speech_apart else shared]
    speaking += [Device() for _ in range(staging.speak_replicas - 1)]

    def place(device: Device) -> Place:
        return Place(clock, Costs(profile, speed), device, staging.wakeup_ms / 1000)

    def people() -> People:
        return crowd_of_people

    places = [place(device) for device in speaking]
    think, running = _answering(profile, place(shared), places, people, staging)
    encoder = Encoder(
        place(encoding),
        think.send,
        max_batch=staging.encoder_batch or profile.stages["listen"].max_batch,
        running=running,
        consideration=staging.consideration,
    )
    crowd_of_people = People(clock, crowd.people, encoder.send, crowd.stagger_s)
    return _figures(clock, crowd_of_people, [shared, encoding, *speaking], profile, crowd)


def _answering(
    profile: Profile,
    thinking: Place,
    speaking: Sequence[Place],
    people: Callable[[], People],
    staging: Staging,
) -> tuple[Steps, Callable[[], int]]:
    """The stages behind the encoder, and a count of the streams that run on thinking's device."""
    if "acoustic" in profile.stages:
        return _diffusing(profile, thinking, speaking[0], people, staging)
    chunk = profile.stages["speak"].steps_per_chunk

    def spoke(talk: Talk, step: int) -> None:
        if step == chunk:
            people().heard(talk)

    def answered(talk: Talk) -> None:
        people().answered(talk)

    once = staging.join_at_once
    speak = [Steps(one, "speak", answered, spoke, join_at_once=once) for one in speaking]
    think = Steps(thinking, "think", partial(_to_least, speak), join_at_once=once)
    beside = [one for one in speak if one.device is thinking.device]
    return think, lambda: think.running + sum(one.running for one in beside)


def _to_least(replicas: Sequence[Steps], talk: Talk) -> None:
    """As the product chooses: the replica with the fewest turns."""
    min(replicas, key=lambda one: one.running).send(talk)


def _diffusing(
    profile: Profile,
    thinking: Place,
    speaking: Place,
    people: Callable[[], People],
    staging: Staging,
) -> tuple[Steps, Callable[[], int]]:
    """Thinking in pieces, each spoken by diffusion and a vocoder."""
    ends = list(accumulate(_think_steps(profile)))

    def spoken(talk: Talk, piece: int) -> None:
        people().heard(talk)
        talk.pieces += 1
        if talk.pieces == len(ends):
            people().answered(talk)

    vocoder = Vocoder(speaking, spoken)
    acoustic = Acoustic(speaking, vocoder.send, staging.patience_s)

    def thought(talk: Talk, step: int) -> None:
        if step in ends:
            acoustic.send(talk, ends.index(step))

    think = Steps(thinking, "think", lambda talk: None, thought, join_at_once=staging.join_at_once)
    return think, lambda: think.running


def _think_steps(profile: Profile) -> tuple[int, ...]:
    think = profile.stages["think"]
    return think.steps_per_piece or (think.steps,)


def _figures(
    clock: Clock, people: People, devices: list[Device], profile: Profile, crowd: Crowd
) -> Figures:
    end = crowd.warm_up_s + crowd.measured_s
    clock.run(end)
    different = list({id(device): device for device in devices}.values())
    return measure(people.talks, different, crowd.warm_up_s, end, profile.client.timeout_s)
