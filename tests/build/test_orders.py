"""The ordering dialogs, and what the LoRA is trained on."""

import json
import random
from pathlib import Path

import pytest
import torch

from build.fetch import CACHE_VARIABLE, sha256
from build.smollm import lora, weights
from build.smollm.dialogs import as_heard, sample
from build.smollm.menu import ABSENT, DRINKS, FOOD, SIDES, Item, listed
from build.smollm.model import Llama
from build.smollm.probes import PROBES, QUALITY, Line, is_right
from build.smollm.train_orders import (
    Recipe,
    answer_mask,
    batch_at,
    dialog_tokens,
    remaining_steps,
)
from build.smollm.weights import LlamaConfig

TINY = LlamaConfig(2, 4, 2, 32, 48, 64, 1e4, 1e-5)


def test_the_same_seed_gives_the_same_dialogs() -> None:
    first, second = (
        [sample(rng) for _ in range(50)] for rng in (random.Random(3), random.Random(3))
    )
    assert first == second


def test_every_answer_is_one_or_two_short_sentences() -> None:
    rng = random.Random(0)
    answers = {answer for _ in range(500) for _, answer in sample(rng)}
    assert all(
        1 <= answer.count(".") + answer.count("?") + answer.count("!") <= 4 for answer in answers
    )
    assert max(len(answer.split()) for answer in answers) <= 40


def test_nothing_on_the_menu_is_refused() -> None:
    assert not set(ABSENT) & set(FOOD + SIDES + DRINKS)


def test_items_are_said_as_people_say_them() -> None:
    items = [Item("taco", 2, modifier="no onions"), Item("fries", size="large"), Item("iced tea")]
    assert listed(items) == "two tacos with no onions, large fries and an iced tea"


def test_a_recogniser_may_write_digits() -> None:
    heard = {as_heard(random.Random(seed), "I'd like two tacos.") for seed in range(50)}
    assert "I'd like 2 tacos." in heard
    assert "I'd like two tacos." in heard


def test_only_answers_and_their_end_are_trained_on() -> None:
    tokenizer = weights.tokenizer()
    dialog = [("Hi.", "Welcome!"), ("Two tacos.", "Got it, two tacos.")]
    ids = torch.tensor([dialog_tokens(dialog, tokenizer, 192)])
    trained = ids[answer_mask(ids, tokenizer)].tolist()
    assert tokenizer.decode(trained, skip_special_tokens=False) == (
        "Welcome!<|im_end|>Got it, two tacos.<|im_end|>"
    )


def test_a_long_dialog_loses_its_oldest_exchanges_and_keeps_the_system_line() -> None:
    tokenizer = weights.tokenizer()
    dialog = [(f"Line {n}.", "Got it, a taco. Anything else?") for n in range(20)]
    ids = dialog_tokens(dialog, tokenizer, 192)
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert len(ids) <= 192
    assert text.startswith("<|im_start|>system")
    assert "Line 0." not in text
    assert text.endswith("Anything else?<|im_end|>")


def test_a_batch_depends_only_on_seed_and_step() -> None:
    tokenizer, recipe = weights.tokenizer(), Recipe(batch=4, micro=2)
    first, again, other = (batch_at(step, recipe, tokenizer) for step in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert [a.shape for a in first] != [b.shape for b in other] or not torch.equal(
        first[0], other[0]
    )


def test_merged_adapters_compute_what_attached_ones_do() -> None:
    torch.manual_seed(0)
    plain = Llama(TINY)
    attached = Llama(TINY)
    attached.load_state_dict(plain.state_dict())
    lora.attach(attached)
    for parameter in attached.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        expected, _ = attached(ids)
        found, _ = lora.merge(plain, lora.adapter_state(attached))(ids)
    torch.testing.assert_close(found, expected)


def test_an_answer_is_right_with_every_word_it_must_have_and_none_it_must_not() -> None:
    line = Line("Do you have sushi?", ("sorry", "sushi"), ("yes",))
    assert is_right(line, "Sorry, we don't have sushi.")
    assert not is_right(line, "Sorry, we don't have pizza.")
    assert not is_right(line, "Yes, sorry, sushi.")


def test_the_committed_quality_report_is_of_the_committed_adapters() -> None:
    report = json.loads(QUALITY.read_text())
    assert report["adapters_sha256"] == sha256(lora.ADAPTERS)
    assert report["probes"] == len(PROBES)
    assert report["passed"] >= 9


def test_a_new_adapter_changes_nothing() -> None:
    model = Llama(TINY)
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        before, _ = model(ids)
        assert len(lora.attach(model)) == 2 * 7 * TINY.layers
        after, _ = model(ids)
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize(("step", "rate"), [(0, 2e-3 / 8), (40, 1e-3), (80, 0.0)])
def test_the_rate_warms_up_and_ends_at_zero(step: int, rate: float) -> None:
    assert Recipe().rate_at(step) == pytest.approx(rate, abs=1e-5)


def test_training_resumes_from_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    recipe = Recipe(steps=13)
    model = Llama(TINY)
    trained = lora.attach(model)
    optimizer = torch.optim.AdamW(trained)
    for step in remaining_steps(recipe, model, optimizer):
        with torch.no_grad():
            trained[0].fill_(step)
        if step == 11:
            break
    fresh = Llama(TINY)
    resumed = lora.attach(fresh)
    steps = remaining_steps(recipe, fresh, torch.optim.AdamW(resumed))
    assert next(steps) == 10
    assert float(resumed[0].detach().max()) == 9.0
    assert list(steps) == [11, 12]
    other = remaining_steps(Recipe(steps=12), fresh, torch.optim.AdamW(resumed))
    assert next(other) == 0
