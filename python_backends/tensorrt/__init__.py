"""TensorRT engines at run time: which file, on which device, and how it is called.

`tensorrt` and `torch` are imported when an engine is opened, never before: neither is needed where
ONNX Runtime computes.
"""
