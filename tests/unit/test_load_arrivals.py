import json
from itertools import islice, pairwise
from pathlib import Path

import pytest

from loadtest.load.arrivals import poisson, read_trace


def test_poisson_arrivals_are_the_same_for_the_same_seed() -> None:
    assert list(islice(poisson(5.0, 7), 50)) == list(islice(poisson(5.0, 7), 50))
    assert list(islice(poisson(5.0, 7), 50)) != list(islice(poisson(5.0, 8), 50))


def test_poisson_arrivals_come_at_the_rate_and_without_memory() -> None:
    offsets = list(islice(poisson(20.0, 1), 20_000))
    gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(offsets)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(0.05, rel=0.05)
    assert variance**0.5 == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize(
    "text", ["start_s,people\n1.5,3\n0,1\n", "1.5\n0\n", "people,start_s\n3,1.5\n\n1,0\n"]
)
def test_a_csv_trace_is_read_in_order(tmp_path: Path, text: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    assert read_trace(trace) == [0, 1_500_000_000]


@pytest.mark.parametrize("entries", [[1.5, 0], [{"start_s": 1.5}, {"start_s": 0, "who": "a"}]])
def test_a_json_trace_is_read_in_order(tmp_path: Path, entries: list[object]) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(entries))
    assert read_trace(trace) == [0, 1_500_000_000]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "start_s\n1\nsoon\n", "entry 2: 'soon'"),
        ("a.csv", "1\n-1\n", "entry 2: -1.0"),
        ("a.csv", "a,b\n1,2\n", "start_s is needed"),
        ("a.csv", "start_s,b\n", "no starts"),
        ("a.csv", "b,start_s\n1\n", "entry 1: ''"),
        ("a.json", "[NaN]", "not a time"),
        ("a.json", '[{"at": 1}]', "entry 1: None"),
        ("a.json", '{"start_s": 1}', "a list"),
    ],
)
def test_a_broken_trace_is_refused_with_the_entry_named(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    trace = tmp_path / name
    trace.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_trace(trace)
