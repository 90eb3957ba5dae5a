"""The monolith: everything in one process, under one scheduler, on one device.

`room` admits, `steps` and `locked` are the two rules of the seed's profiles, both pure; `loop` runs
either of them on the emulated device, and `loadtest.sim` in virtual time.
"""
