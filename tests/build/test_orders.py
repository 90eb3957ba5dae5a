"""The ordering dialogs, and what the LoRA is trained on."""

import hashlib
import json
import random
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from build.fetch import CACHE_VARIABLE
from build.llama.config import LlamaConfig, rope_of
from build.llama.model import Llama
from build.smollm import lora, weights
from build.smollm.dialogs import sample
from build.smollm.evaluate import ENOUGH, QUALITY, judge
from build.smollm.held_out import CONVERSATIONS
from build.smollm.held_out_again import CONVERSATIONS_AGAIN
from build.smollm.saying import as_heard
from build.smollm.train_orders import (
    CURVE,
    Prefix,
    Recipe,
    answer_mask,
    batch_at,
    dialog_tokens,
    logits_of,
    remaining_steps,
)
from build.smollm.wares import ABSENT
from python_backends.digests import sha256
from python_backends.ordering.menu import DRINKS, FOOD, SIDES, joined, money
from python_backends.ordering.order import Order, items_in

SETS = {
    "held_out": CONVERSATIONS,
    "held_out_without": CONVERSATIONS,
    "held_out_again": CONVERSATIONS_AGAIN,
}

TINY = LlamaConfig(2, 4, 2, 8, 32, 48, 64, 1e-5, rope_of(8, 1e4))


def test_the_same_seed_gives_the_same_dialogs() -> None:
    first, second = (
        [sample(rng) for _ in range(50)] for rng in (random.Random(3), random.Random(3))
    )
    assert first == second


def test_every_answer_is_a_few_short_sentences() -> None:
    rng = random.Random(0)
    answers = {answer for _ in range(500) for _, answer in sample(rng)}
    assert {len(re.split(r"(?<=[.!?]) ", answer)) for answer in answers} == {1, 2, 3}
    assert max(len(answer.split()) for answer in answers) <= 40


def test_nothing_on_the_menu_is_refused() -> None:
    assert not set(ABSENT) & {*FOOD, *SIDES, *DRINKS}


def test_what_the_answers_say_is_what_conversation_code_reads() -> None:
    rng = random.Random(7)
    counted = 0
    for _ in range(500):
        order = Order()
        for _, answer in sample(rng):
            for sentence in answer.split(". "):
                if found := re.match("(?:Got it,|(?:Sure, )?I added) ([^.]*)", sentence):
                    assert joined([item.text for item in items_in(found[1])]) == found[1]
                    counted += 1
                if found := re.match(
                    "Sure, I changed (.*) to ([^.]*)|Okay, I removed (.*)", sentence
                ):
                    for old in items_in(found[1] or found[3]):
                        at = order.find(old)
                        assert at is not None
                        assert order.items[at].again == (found[1] or found[3])
                        counted += 1
            order = order.after(answer)
    assert counted > 500


def test_a_total_is_that_of_the_order() -> None:
    rng = random.Random(8)
    totals = 0
    for _ in range(500):
        order = Order()
        for _, answer in sample(rng):
            if found := re.search(r"total is (\$[\d.]*\d)", answer):
                assert found[1] == money(order.cents)
                totals += 1
            order = order.after(answer)
    assert totals > 100


def test_a_recogniser_may_write_digits() -> None:
    heard = {as_heard("I'd like two tacos.", random.Random(seed)) for seed in range(50)}
    assert "I'd like 2 tacos." in heard
    assert "I'd like two tacos." in heard


def test_only_answers_and_their_end_are_trained_on() -> None:
    tokenizer = weights.tokenizer()
    dialog = [("Hi.", "Welcome!"), ("Two tacos.", "Got it, two tacos.")]
    ids = torch.tensor([dialog_tokens(dialog, tokenizer, 400)])
    trained = ids[answer_mask(ids, tokenizer)].tolist()
    assert tokenizer.decode(trained, skip_special_tokens=False) == (
        "Welcome!<|im_end|>Got it, two tacos.<|im_end|>"
    )


def test_a_long_dialog_loses_its_oldest_exchanges_and_keeps_the_system_line() -> None:
    tokenizer = weights.tokenizer()
    dialog = [(f"Line {n}.", "Got it, a taco. Anything else?") for n in range(20)]
    ids = dialog_tokens(dialog, tokenizer, 400)
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert len(ids) <= 400
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


def test_the_shared_prefix_gives_the_loss_and_the_gradient_of_whole_prompts() -> None:
    torch.manual_seed(0)
    model = Llama(TINY)
    weight = model.block(0).query.weight
    whole, shared = torch.tensor([[1, 5, 9, 2, 7, 4, 8], [1, 5, 9, 2, 6, 3, 8]]), [1, 5, 9]
    mask = torch.ones_like(whole[:, 3:], dtype=torch.bool)
    grads = []
    for prefix in (Prefix(model, shared), None):
        model.zero_grad()
        if prefix is None:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden, _ = model(whole)
            logits, expected = model.logits(hidden[:, 3:-1].float().flatten(0, 1)), whole[:, 4:]
        else:
            logits, expected = logits_of(model, whole[:, 3:], mask, prefix)
        loss = torch.nn.functional.cross_entropy(logits, expected.flatten())
        torch.autograd.backward(loss)
        if prefix is not None:
            prefix.backward()
        assert weight.grad is not None
        grads.append((float(loss.detach()), weight.grad.float().clone()))
    torch.testing.assert_close(grads[0][0], grads[1][0], atol=0.01, rtol=0.01)
    difference = (grads[0][1] - grads[1][1]).norm() / grads[1][1].norm()
    assert float(difference) < 0.05


def test_the_committed_quality_report_is_of_the_committed_adapters() -> None:
    report = json.loads(QUALITY.read_text())
    assert report["adapters_sha256"] == sha256(lora.ADAPTERS)
    assert report["turns"] == 50
    assert report["right"] >= ENOUGH
    assert report["turns_with_invented_items"] == 0
    for name, conversations in SETS.items():
        rows = [row for conversation in report[name] for row in conversation]
        heard = [line.heard for one in conversations for line in one]
        assert [row["heard"] for row in rows] == heard


def test_the_committed_adapters_are_those_of_the_recipe_and_its_dialogs(
    trained: list[list[tuple[str, str]]],
) -> None:
    kept = json.loads(CURVE.read_text())
    recipe = Recipe()
    assert kept["recipe"] == asdict(recipe)
    assert kept["points"][-1]["step"] == recipe.steps
    digest = hashlib.sha256()
    for step in range(recipe.steps):
        digest.update(repr(trained[step * recipe.batch : (step + 1) * recipe.batch]).encode())
    assert kept["dialogs_sha256"] == digest.hexdigest()


def test_the_committed_answers_are_judged_again_as_they_were() -> None:
    report = json.loads(QUALITY.read_text())
    for name, conversations in SETS.items():
        for lines, rows in zip(conversations, report[name], strict=True):
            assert judge(lines, [row["answer"] for row in rows]) == rows


def test_a_new_adapter_changes_nothing() -> None:
    model = Llama(TINY)
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        before, _ = model(ids)
        assert len(lora.attach(model)) == 2 * 7 * TINY.layers
        after, _ = model(ids)
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 8e-5), (14, 1.2e-3), (200, 1.2e-3), (290, 6e-4), (380, 0.0)]
)
def test_the_rate_warms_up_stays_and_ends_at_zero(step: int, rate: float) -> None:
    recipe = Recipe(steps=380, warmup=15, decay=180)
    assert recipe.rate_at(step) == pytest.approx(rate, abs=1e-5)


def test_training_resumes_from_its_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    recipe = Recipe(steps=13)
    model = Llama(TINY)
    trained = lora.attach(model)
    optimizer = torch.optim.AdamW(trained)
    curve: list[dict[str, float]] = []
    for step in remaining_steps(recipe, model, optimizer, curve):
        curve.append({"step": step})
        with torch.no_grad():
            trained[0].fill_(step)
        if step == 11:
            break
    fresh = Llama(TINY)
    resumed = lora.attach(fresh)
    known: list[dict[str, float]] = []
    steps = remaining_steps(recipe, fresh, torch.optim.AdamW(resumed), known)
    assert next(steps) == 10
    assert known == curve[:10]
    assert float(resumed[0].detach().max()) == 9.0
    assert list(steps) == [11, 12]
    shorter = remaining_steps(Recipe(steps=12), fresh, torch.optim.AdamW(resumed), [])
    assert next(shorter) == 0


def test_a_checkpoint_of_an_older_layout_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    torch.save({"step": 10, "recipe": "of old"}, tmp_path / "checkpoints" / "orders.pt")
    model = Llama(TINY)
    optimizer = torch.optim.AdamW(lora.attach(model))
    assert next(remaining_steps(Recipe(steps=13), model, optimizer, [])) == 0


@pytest.mark.parametrize(("steps", "first"), [(40, 10), (25, 10), (13, 0)])
def test_a_longer_training_goes_on_from_the_constant_part_of_a_shorter_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, first: int
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    model = Llama(TINY)
    optimizer = torch.optim.AdamW(lora.attach(model))
    for step in remaining_steps(Recipe(steps=20, decay=8), model, optimizer, []):
        if step == 11:
            break
    assert next(remaining_steps(Recipe(steps=steps, decay=8), model, optimizer, [])) == first
