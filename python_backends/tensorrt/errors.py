"""What is wrong with an engine, or with the machine that it is for."""


class EngineUnfit(Exception):
    """It cannot be used here; the message says why, and what to do."""
