"""A small Triton repository with the product's backends and policies, and leaves that compute on
the emulated device. What it answers, and what is measured on it, is emulated."""
