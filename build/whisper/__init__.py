"""Whisper: its models in PyTorch, their graphs, and tiny.en out of CTranslate2 weights."""
