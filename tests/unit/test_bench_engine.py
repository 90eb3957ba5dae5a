"""What `make bench-engine` makes of measured numbers: made up here, so that each can fail."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadtest.engine import step_trace
from loadtest.engine.__main__ import BENCH, TARGETS
from loadtest.engine.beside import STREAMS, Round, beside_figures, shipped_chunk
from loadtest.engine.figures import (
    Found,
    Ordered,
    chunks_between_steps,
    commands_to_first_token,
    gap,
    mean_context,
    mean_interval_ms,
    ratio,
    rotated,
    step_intervals_ms,
)
from loadtest.engine.plots import draw
from loadtest.engine.reuse import FRESH, KNOWN, reuse_figures
from loadtest.engine.served import (
    BARE,
    ENGINES,
    GAP_ROWS,
    SERVED_ROWS,
    gap_figures,
    served_figures,
)
from loadtest.engine.several import engine_figures
from loadtest.engine.steps import (
    CONTEXTS,
    CT2,
    LLAMA,
    OURS,
    PROMPTS,
    ROWS,
    Cells,
    curves,
    prefill_figures,
    step_figures,
)
from loadtest.load.punctuality import percentile
from python_backends.scheduling.continuous import ContinuousBatch, Member

MS = 1_000_000


def chunk(rows: int = 0, gap_ms: float = 70.0, *, last: bool = False) -> Ordered:
    return Ordered(chunks=1, rows=rows, gap_ms=gap_ms, is_first_token=last)


def step(rows: int, gap_ms: float = 30.0) -> Ordered:
    return Ordered(chunks=0, rows=rows, gap_ms=gap_ms)


def test_a_round_that_was_slow_as_a_whole_does_not_move_a_ratio() -> None:
    ours, peers = [10.0, 30.0, 11.0], [20.0, 60.0, 22.0]
    assert ratio(peers, ours) == 2.0
    assert ratio([20.0, 45.0, 22.0], ours) == 2.0
    assert ratio([20.0, 45.0, 16.5], ours) == 1.5


def test_rounds_of_unequal_number_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0, 2.0], [1.0])


def test_everybody_goes_first_once() -> None:
    orders = [rotated("abc", number) for number in range(3)]
    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.5) == 50.0
    assert percentile([5.0], 0.99) == 5.0
    assert percentile([1.0] * 99 + [500.0], 0.99) == 1.0
    assert percentile([1.0] * 98 + [500.0] * 2, 0.99) == 500.0


def test_two_chunks_between_two_decode_steps_are_found() -> None:
    good = [step(7), chunk(7), chunk(7), chunk(7, last=True), step(8)]
    assert chunks_between_steps(good) == 1
    assert chunks_between_steps([step(7), chunk(0), chunk(7), step(7)]) == 2
    whole = Ordered(chunks=3, rows=7, gap_ms=1.0)
    assert chunks_between_steps([step(7), whole]) == 3


def test_chunks_before_the_first_step_keep_nobody_waiting() -> None:
    assert chunks_between_steps([chunk(), chunk(), chunk(1), step(2)]) == 0
    assert chunks_between_steps([]) == 0


def test_the_batch_puts_one_chunk_between_two_steps() -> None:
    """The count agrees with plans of the product's own batch, and finds what its rule prevents."""
    batch: ContinuousBatch[str] = ContinuousBatch(3, 64, 4)
    trace = list(planned(batch))
    assert chunks_between_steps(trace) == 1
    assert commands_to_first_token(trace) == 1
    skipping = [replace(one, rows=one.rows * (n % 2)) for n, one in enumerate(trace)]
    assert chunks_between_steps(skipping) == 2


def planned(batch: "ContinuousBatch[str]") -> Iterator[Ordered]:
    """One short prompt, then a long one beside its steps."""
    batch.join(Member("stream", prompt=2, max_new=20))
    for number in range(8):
        if number == 2:
            batch.join(Member("newcomer", prompt=15, max_new=4))
        plan = batch.plan()
        assert plan is not None
        batch.commit(plan)
        ended = plan.chunk is not None and plan.chunk.is_last
        yield Ordered(int(plan.chunk is not None), len(plan.decode), 0.0, ended)


def test_the_first_token_is_counted_from_the_arrival_on() -> None:
    assert commands_to_first_token([chunk(7), chunk(7, last=True), step(8)]) == 2
    assert commands_to_first_token([step(7), step(7), chunk(7, last=True)]) == 3
    with pytest.raises(ValueError, match="no prompt"):
        commands_to_first_token([chunk(7), step(7)])


def test_figures_of_streams_beside_a_prompt_tell_the_late_from_the_prompt() -> None:
    prompt = [chunk(STREAMS)] * 24 + [chunk(STREAMS, last=True)]
    found = beside_figures(16, [Round([step(STREAMS)] * 5 + prompt, prompt)])
    assert found["beside_16_gap_p99_by_step"] == pytest.approx(70 / 30)
    assert (found["beside_16_chunks_between_steps"], found["beside_16_commands_beyond_chunks"]) == (
        1,
        0,
    )
    late = [step(STREAMS), chunk(STREAMS, 300.0), chunk(0), *prompt]
    found = beside_figures(16, [Round([step(STREAMS)] * 5 + late, late)])
    assert found["beside_16_gap_p99_by_step"] == pytest.approx(10)
    assert (found["beside_16_chunks_between_steps"], found["beside_16_commands_beyond_chunks"]) == (
        2,
        3,
    )


def test_a_hiccup_of_one_round_is_not_the_prompts() -> None:
    prompt = [chunk(STREAMS)] * 3 + [chunk(STREAMS, last=True)]
    hiccup = [chunk(STREAMS), chunk(STREAMS, 300.0), *prompt[2:]]
    rounds = [Round([step(STREAMS)] * 5 + one, one) for one in (prompt, hiccup, prompt)]
    found = beside_figures(16, rounds)
    assert found["beside_16_gap_p99_by_step"] == pytest.approx(70 / 30)
    assert found["beside_16_gap_p99_pooled_by_step"] == pytest.approx(10)


def test_only_steps_of_all_rows_and_nothing_else_are_timed() -> None:
    steps = [(0, 1), (90 * MS, 2), (120 * MS, 2), (160 * MS, 2), (400 * MS, 1), (410 * MS, 2)]
    assert step_intervals_ms(steps, 2) == [30.0, 40.0]
    assert mean_interval_ms(steps, 2, at_least=2) == 35.0
    with pytest.raises(ValueError, match="2 steps of 2 rows"):
        mean_interval_ms(steps, 2, at_least=3)


def test_rows_that_join_one_a_step_are_as_long_as_they_are_on_average() -> None:
    assert mean_context(prompt=40, rows=1, steps=40) == 60
    lengths = [40 + behind + at for behind in range(8) for at in range(1, 41)]
    assert mean_context(prompt=40, rows=8, steps=40) == pytest.approx(np.mean(lengths), abs=1)


def test_a_gap_is_what_a_step_takes_beyond_computing() -> None:
    assert gap(40.0, 30.0) == {"gap_ms": 10.0, "gap_share": 0.25}


def test_bls_that_costs_more_than_three_percent_makes_an_engine_in_process_due() -> None:
    def judged(bls_ms: float) -> dict[str, float | None]:
        took = {(BARE, rows): [30.0] * 3 for rows in GAP_ROWS}
        took |= {("in_process", rows): [31.0] * 3 for rows in GAP_ROWS}
        return gap_figures(took | {("bls", rows): [bls_ms] * 3 for rows in GAP_ROWS})

    assert judged(31.5)["in_process_is_due"] == 0
    assert judged(32.5)["in_process_is_due"] == 1
    assert judged(40.0)["gap_bls_n8_ms"] == 10.0
    assert judged(40.0)["gap_bls_n32_share"] == 0.25
    assert set(ENGINES) == {"bls", "in_process"}


def test_a_server_that_loses_a_fifth_is_not_as_fast_as_its_engine() -> None:
    took = {(BARE, rows): [20.0] for rows in SERVED_ROWS}
    found = served_figures(took | {("served", rows): [25.0] for rows in SERVED_ROWS})
    assert found["served_by_bare_n8"] == 0.8
    assert found["served_n8_tokens_per_s"] == 320.0


def test_two_engines_are_held_to_one_of_two_threads() -> None:
    rates = {"two_single_n8": [400.0, 300.0], "one_double_n16": [320.0, 320.0]}
    found = engine_figures(rates | {"one_single_n16": [250.0, 250.0]})
    assert found["two_single_by_one_double"] == pytest.approx(350 / 320)
    assert found["two_single_by_one_single"] == pytest.approx(350 / 250)


def test_reuse_is_judged_by_pairs_and_by_what_was_said() -> None:
    took = {(how, turn): [100.0, 200.0] for how in (KNOWN, FRESH) for turn in (2, 4)}
    took[KNOWN, 2] = [50.0, 60.0]
    found = reuse_figures(took, same=False)
    assert found["reuse_turn_2_ratio"] == 0.4
    assert found["reuse_turn_4_ratio"] == 1.0
    assert found["reuse_same_answers"] == 0


def cells(*names: str) -> Cells:
    """A peer takes twice the time at 8 rows of 64, and as long as we do anywhere else."""
    found: Cells = {(name, rows, c): [10.0] for name in names for rows in ROWS for c in CONTEXTS}
    for name in set(names) - {OURS}:
        found[name, 8, 64] = [20.0]
    return found


def prompts(*names: str) -> Cells:
    return {(name, 1, tokens): [5.0] for name in names for tokens in PROMPTS}


def test_tokens_by_a_peer_grow_with_its_time_and_prefill_times_fall() -> None:
    found = step_figures(cells(OURS, LLAMA, CT2))
    assert found["tokens_per_s_by_llama_cpp_n8_c64"] == 2.0
    assert found["tokens_per_s_by_llama_cpp_n8_c256"] == 1.0
    assert found["tokens_per_s_ours_n8_c64"] == 800.0
    assert curves(cells(OURS, CT2))["64"][CT2][ROWS.index(8)] == 400.0
    slow = prompts(OURS, LLAMA) | {(OURS, 1, 64): [10.0]}
    assert prefill_figures(slow)["prefill_time_by_llama_cpp_64"] == 2.0


def test_a_peer_that_is_not_there_leaves_null_and_a_reason() -> None:
    figures = step_figures(cells(OURS, CT2)) | prefill_figures(prompts(OURS, CT2))
    found = BENCH.result({"steps": Found(figures, missing={LLAMA: "cyllama is not installed"})})
    assert found["summary"]["step_llama_cpp_n8_c64_ms"] is None
    assert found["summary"]["tokens_per_s_by_llama_cpp_n8_c64"] is None
    assert found["summary"]["tokens_per_s_by_ctranslate2_n8_c64"] == 2.0
    assert "tokens_per_s_by_llama_cpp_n8_c64" not in found["met"]
    assert found["not_measured"][LLAMA] == "cyllama is not installed"
    assert found["not_measured"]["tokens_per_s_by_llama_cpp_n8_c64"] == "a peer is missing"
    assert found["not_measured"]["reuse_turn_2_ratio"] == "its experiment was not run"


def test_an_unmet_target_is_unmet_and_every_target_can_be_measured() -> None:
    met: dict[str, float | None] = {
        name: 2.0 if target.words.startswith(">") else 0.5 for name, target in TARGETS.items()
    }
    assert all(BENCH.result({"all": Found(met)})["met"].values())
    assert BENCH.result({"all": Found(met)})["not_measured"] == {}
    for name, value in met.items():
        wrong = 0.1 if value == 2.0 else 9.0
        found = BENCH.result({"all": Found(met | {name: wrong})})["met"]
        assert [unmet for unmet, is_met in found.items() if not is_met] == [name]
    assert list(BENCH.experiments) == ["steps", "gap", "served", "beside", "engines", "reuse"]


def test_what_was_measured_is_written_although_it_cannot_be_drawn(tmp_path: Path) -> None:
    def undrawable(detail: object, folder: Path) -> list[Path]:
        raise KeyError("cells")

    experiments = {"one": lambda folder, rounds, progress: Found({"ms": 2.0})}
    bench = replace(BENCH, name="broken", experiments=experiments, targets={}, draw=undrawable)
    with pytest.raises(KeyError, match="cells"):
        bench.main(["--out", str(tmp_path)])
    assert json.loads((tmp_path / "broken.json").read_text())["summary"] == {"ms": 2.0}


def test_every_target_names_a_figure_of_an_experiment() -> None:
    long = [chunk(STREAMS, last=True)]
    parts: list[dict[str, float | None]] = [
        step_figures(cells(OURS, LLAMA, CT2)),
        served_figures({(who, n): [1.0] for who in (BARE, "served") for n in SERVED_ROWS}),
        beside_figures(shipped_chunk(), [Round([step(STREAMS), *long], long)]),
        engine_figures({n: [1.0] for n in ("two_single_n8", "one_double_n16", "one_single_n16")}),
        reuse_figures({(how, n): [1.0] for how in (KNOWN, FRESH) for n in (2, 4)}, same=True),
    ]
    assert TARGETS.keys() <= {name for part in parts for name in part}


def test_steps_that_a_server_wrote_down_are_read_from_where_they_were_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "steps"
    monkeypatch.setenv(step_trace.VARIABLE, str(trace))
    write = step_trace.writer()
    write(5 * MS, 1)
    seen = trace.stat().st_size
    write(7 * MS, 8)
    assert step_trace.read(trace) == [(5 * MS, 1), (7 * MS, 8)]
    assert step_trace.read(trace, seen) == [(7 * MS, 8)]


def test_pictures_are_drawn_of_what_was_run_alone(tmp_path: Path) -> None:
    steps = {"tokens_per_s": curves(cells(OURS, LLAMA, CT2))}
    gaps = {"gaps_ms": {"16": {"without a prompt": [30.0, 31.0], "beside a prompt": [70.0]}}}
    assert [path.name for path in draw({"steps": steps}, tmp_path)] == ["tokens_per_s.png"]
    drawn = draw({"steps": steps, "beside": gaps, "reuse": {}}, tmp_path)
    assert [path.read_bytes()[:4] for path in drawn] == [b"\x89PNG"] * 2
