"""The emulated device: exclusive, first come first served, with costs from a profile.

Everything measured on it says that it is emulated.
"""

from loadtest.device.device import Device, DevicePass, Pass, create, newest_pass, read_passes
from loadtest.device.emulation import ENVIRONMENT, Delays, Emulation, Profile, StageCost, named
from loadtest.device.spans import SpanLog

__all__ = [
    "ENVIRONMENT",
    "Delays",
    "Device",
    "DevicePass",
    "Emulation",
    "Pass",
    "Profile",
    "SpanLog",
    "StageCost",
    "create",
    "named",
    "newest_pass",
    "read_passes",
]
