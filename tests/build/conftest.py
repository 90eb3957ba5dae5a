"""What several tests of the ordering model look through."""

import pytest

from build.smollm.train_orders import Recipe, dialogs_at, validation_dialogs


@pytest.fixture(scope="session")
def trained() -> list[list[tuple[str, str]]]:
    """Every dialog that training uses, and those it is validated with: (customer, answer) turns."""
    recipe = Recipe()
    steps = [dialog for step in range(recipe.steps) for dialog in dialogs_at(step, recipe)]
    return [*steps, *validation_dialogs(recipe)]
