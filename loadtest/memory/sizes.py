"""How many bytes an emulated turn takes, and how long turns are.

The profile's times are those of large models, so the sizes are those of large, published ones, in
fp16. They were written down before anything was run, and are not fitted to what comes out.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from loadtest.device import Profile

FP16: Final = 2


@dataclass(frozen=True)
class Sizes:
    """Bytes on the device."""

    device: int
    """For everything that comes and goes: what the weights leave."""

    encoder_member: int
    """Of each member of an encoder's pass, while it lasts."""

    token: int
    """KV of a token, from when it is written until its turn has been thought."""

    speech: int
    """Of a turn that is being spoken, from its first step to its last."""


def attended(positions: int, width: int, heads: int, arrays: int) -> int:
    """Activations of one attention layer whose scores are held in full, once before and once after
    the softmax, as in a graph that ONNX Runtime has not fused, beside `arrays` of the layer's
    [positions, width]; with no heads, of a fused one, which has no scores."""
    return FP16 * (2 * heads * positions**2 + arrays * positions * width)


ENCODER_MEMBER: Final = attended(positions=1500, width=1280, heads=20, arrays=5)
"""Whisper large-v3 (its config.json), 30 s of sound: the layer's input, q, k, v and output.
199 MB; only one layer runs at a time."""

TOKEN: Final = FP16 * 2 * 32 * 8 * 128
"""Llama 3 8B (its config.json): K and V of 32 layers, 8 heads of 128. 131 kB."""

SPEECH: Final = 2 * attended(positions=750, width=1024, heads=16, arrays=10)
"""Flow matching of the size of F5-TTS (its base config), 8 s at 93.75 frames/s: the profile's 6 s
of speech and 2 s of the voice to imitate; twice, for guidance. 103 MB, however long the answer. Ten
arrays are a guess: those of the encoder's layer, and as many for state, noise and conditions."""

WEIGHTS: Final = 8_000_000_000 + 1_280_000_000 + 670_000_000
"""Llama 3 8B in int8, which a card with 936 GB/s reads in the 8.6 ms of a think step; the encoder
of Whisper large-v3 and F5-TTS in fp16."""

CONTEXTS: Final = 3 * 500_000_000
"""Three processes: CUDA context, kernels, what their allocators keep. A round guess."""

CARD: Final = 24 * 2**30
SIZES: Final = Sizes(CARD - WEIGHTS - CONTEXTS, ENCODER_MEMBER, TOKEN, SPEECH)
"""14.3 GB are left."""

FUSED: Final = replace(
    SIZES,
    encoder_member=attended(positions=1500, width=1280, heads=0, arrays=9),
    speech=2 * attended(positions=750, width=1024, heads=0, arrays=10),
)
"""The same with fused attention, to see what hangs on it: 35 and 31 MB, so that a turn is largest
while it is being thought. The encoder's nine are its feed-forward layer's input and twice four."""


@dataclass(frozen=True)
class Length:
    """Of one turn."""

    prompt: int
    answer: int
    """Tokens."""

    speech: int
    """Steps."""


@dataclass(frozen=True)
class Lengths:
    """Turns as they come; each draw is equally likely between its ends."""

    prompt: tuple[int, int] = (300, 700)
    """The product's own: its system text with the menu is 261 tokens, then come the conversation
    and what was heard; a row holds 768 with the answer."""

    answer: tuple[int, int] = (16, 64)
    """The profile's 40 on average; 64 is the product's `max_new_tokens`."""

    speech_by_answer: float = 75 / 40
    """Steps of speech for a token, as in the profile."""

    @classmethod
    def of(cls, profile: Profile) -> "Lengths":
        """Answers as long as the profile's on average."""
        think, speak = (profile.stages[name].steps for name in ("think", "speak"))
        assert sum(cls.answer) == 2 * think
        return cls(speech_by_answer=speak / think)

    def draw(self, random: Random) -> Length:
        """The next turn."""
        answer = random.randint(*self.answer)
        return Length(random.randint(*self.prompt), answer, round(self.speech_by_answer * answer))

    @property
    def longest_kv(self) -> int:
        """Tokens of the longest turn that may come."""
        return self.prompt[1] + self.answer[1]

    @property
    def mean_reserved(self) -> float:
        """Tokens of a turn's own prompt and the longest answer, on average."""
        return sum(self.prompt) / 2 + self.answer[1]
