"""`make bench-seed`: the seed's experiment on a real Triton server with an emulated device.

experiment  what one run is        plan     every run, in order
harness     servers and devices    figures  the summary: asked, measured, met
"""
