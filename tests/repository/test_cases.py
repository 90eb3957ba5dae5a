"""Every public case has a test that exists and says so, or a reason."""

import ast
import re
from functools import cache

import pytest

from tests.repository.configs import ROOT

IDS = (
    *("A1", "A3", "A4", "A6", "A8", "A10", "A12", "A13"),
    *("B1", "B3", "B6", "B7", "B8", "B9"),
    *("C1", "C2", "C3", "C4", "C7", "C9", "C11", "C13", "C15", "C16"),
    *("D1", "D3", "D4", "D5", "D6", "D8", "D10", "D11"),
    *("E1", "E3", "E5", "E7", "E8", "E9", "E10", "E11"),
    *("F1", "F3", "F4", "F5", "F7", "F8", "F10", "F11", "F12", "F13", "F14", "F15"),
    *("G1", "G3", "G4", "G5", "G7", "G9", "G10", "G12", "G13", "G15"),
    *("H1", "H2", "H3", "H4", "H5", "H8", "H9"),
    *("I1", "I2", "I3", "I7"),
    *("J1", "J2", "J4", "J6", "J7", "J8"),
    *("L1", "L2", "L4", "L5", "L7", "L8", "L9", "L10", "L11"),
    "M1",
)
"""The list of public cases, which lies outside of the repository, but for those of a GPU."""

ROW = re.compile(r"\| ([A-Z]\d+) \| (.+) \| (.+) \|")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[tuple[str, str]]:
    """(id, its tests) of every row."""
    lines = (ROOT / "tests" / "CASES.md").read_text().splitlines()
    found = [ROW.fullmatch(line) for line in lines if re.match(r"\| [A-Z]\d", line)]
    assert all(found), "a row is not | id | what we do | test |"
    return [(one[1], one[3]) for one in found if one]


TESTS = [(case, *test) for case, tests in rows() for test in TEST.findall(tests)]


@cache
def docstrings(file: str) -> dict[str, str]:
    """Of every test in a file."""
    tree = ast.parse((ROOT / file).read_text())
    tests = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    return {one.name: ast.get_docstring(one) or "" for one in tests}


def test_every_case_has_one_row_in_the_order_of_the_list() -> None:
    assert [case for case, _ in rows()] == list(IDS)


@pytest.mark.parametrize(("case", "tests"), rows())
def test_a_row_names_tests_or_says_why_it_does_not_apply(case: str, tests: str) -> None:
    assert TEST.search(tests) or re.match(r"does not apply: \w+ \w+ \w+", tests), case


@pytest.mark.parametrize(("case", "file", "test"), TESTS)
def test_a_test_that_a_row_names_exists_and_names_the_case(case: str, file: str, test: str) -> None:
    assert test in docstrings(file), f"{file} has no {test}"
    assert re.search(rf"[Pp]ublic cases? .*\b{case}\b", docstrings(file)[test]), (file, test)
