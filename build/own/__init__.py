"""Checkpoints that users bring: read as Hugging Face writes them, exported beside our own."""
