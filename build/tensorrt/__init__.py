"""Portable graphs to TensorRT engines; `python -m build tensorrt`. See the README here."""
