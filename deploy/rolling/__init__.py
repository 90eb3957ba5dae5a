"""Another version of a stage, brought in while the server serves, and back again."""
