"""Llama and its kin (Qwen, Mistral): in PyTorch, and as step graphs."""
