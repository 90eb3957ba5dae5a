"""Ways to speak that are compared: flow steps, solvers, temperatures of the prosody."""

from typing import Final

from python_backends.diffusion_lock.solver import SHORTCUT, SHORTCUT_STEPS, chosen

STEPS: Final = (1, 2, 4, 8, 16)

SOLVERS: Final = {steps: chosen("", SHORTCUT, steps) for steps in STEPS}
"""What a caller gets who names steps and no solver."""

UNTAUGHT: Final = tuple(steps for steps in STEPS if steps in SHORTCUT_STEPS)
"""Steps at which Euler's method is compared with the shortcut."""

DEFAULT_TEMPERATURE: Final = 0.3
"""Where a caller names none: that of the server's `Options`, which only a server can import."""

HOTTEST: Final = 1.0
"""The most that is accepted."""

TEMPERATURES: Final = (0.0, DEFAULT_TEMPERATURE, HOTTEST)
