"""What the load raises on purpose, beside ValueError for a spec that makes no sense."""


class GeneratorFailed(Exception):
    """The generator's process ended early; the message carries the end of its log."""
