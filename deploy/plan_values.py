"""Values of a plan that YAML has several ways to write."""


def scalar_text(given: object) -> str:
    """How a config.pbtxt or an environment variable says a YAML scalar: true is "true"."""
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, str | int | float):
        return str(given)
    raise ValueError("a value is text, a number, true or false")
