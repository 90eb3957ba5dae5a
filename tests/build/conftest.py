"""What several tests of the ordering model look through."""

import pytest

from build.smollm.held_out import changed_items
from build.smollm.train_orders import Recipe, dialogs_at, validation_dialogs


@pytest.fixture(scope="session")
def trained() -> list[list[tuple[str, str]]]:
    """Every dialog that training uses, and those it is validated with: (customer, answer) turns."""
    recipe = Recipe()
    steps = [dialog for step in range(recipe.steps) for dialog in dialogs_at(step, recipe)]
    return [*steps, *validation_dialogs(recipe)]


@pytest.fixture(scope="session")
def changes_trained(trained: list[list[tuple[str, str]]]) -> set[tuple[str, str]]:
    """Every item with one of its changes that training names."""
    used = {
        pair
        for dialog in trained
        for heard, answer in dialog
        for pair in changed_items(heard) | changed_items(answer)
    }
    assert len(used) > 100
    return used


@pytest.fixture(scope="session")
def text_trained(trained: list[list[tuple[str, str]]]) -> str:
    """All that training says and answers, in lower case."""
    text = "\n".join(f"{heard}\n{answer}" for dialog in trained for heard, answer in dialog)
    assert "pizza" in text
    return text.lower()
