"""What the bench of operators makes of what it has seen: each of its figures can be wrong."""

import json
import struct
from dataclasses import replace
from pathlib import Path

from matplotlib.image import imread

from client.pulse import Pulse
from deploy.kubernetes.around import BUSY, WAITED
from loadtest.chaos.caller import Told
from loadtest.operate import upgrade
from loadtest.operate.plots import draw
from loadtest.operate.stand import ACOUSTIC, LISTEN, THINK, is_mixed
from loadtest.operate.upgrade import Change, detail, figures
from python_backends.errors import StageFailed

S = 1_000_000_000
CHANGES = [
    Change("upgrade", THINK, 10 * S, 20 * S, 2),
    Change("rollback", THINK, 30 * S, 40 * S, 1),
]


def turn(
    at_s: float, version: str = "", words: str = "old", first_s: float = 1.0, **more: object
) -> Told:
    """Two seconds, one piece."""
    spans = [
        {"stage": stage, **({"version": version} if version and stage == THINK else {})}
        for stage in (LISTEN, THINK, ACOUSTIC)
    ]
    told = Told("t", 1, Pulse("t", 0.0))
    told.sent_ns, told.end_ns, told.ends = round(at_s * S), round((at_s + 2) * S), 1
    told.chunks_ns, told.said = [round((at_s + first_s) * S)], [f"{words} 0"]
    told.events = b"".join(struct.pack("<I", len(one)) + one for one in encoded(spans))
    return replace(told, **more)  # type: ignore[arg-type]


def encoded(spans: list[dict[str, str]]) -> list[bytes]:
    return [json.dumps(one).encode() for one in spans]


def test_all_well_is_all_well() -> None:
    told = [turn(1), turn(9), turn(15, "2", first_s=1.2), turn(22, "2", "new"), turn(50)]
    found = figures(CHANGES, told)
    assert found["upgrade_turns_met"] == 2
    for name in ("failed_turns", "mixed_turns", "not_as_told"):
        assert found[f"upgrade_{name}"] == 0
    assert found["rollback_failed_turns"] == 0
    assert round(found["upgrade_pause_ms"] or 0) == 190


def test_a_turn_that_failed_meanwhile_is_told_with_what_was_done() -> None:
    failed = {"error": StageFailed("x"), "chunks_ns": [], "said": []}
    found = figures(CHANGES, [turn(1), turn(12, **failed), turn(35, **failed), turn(36, **failed)])
    assert (found["upgrade_failed_turns"], found["rollback_failed_turns"]) == (1, 2)


def test_two_versions_or_two_ways_of_thinking_are_a_mixed_turn() -> None:
    both = turn(1)
    span = json.dumps({"stage": THINK, "version": "2"}).encode()
    both.events += struct.pack("<I", len(span)) + span
    assert is_mixed(both)
    assert is_mixed(turn(1, said=["old 0", "new 1"]))
    assert not is_mixed(turn(1, said=["old 0", "old 1", ""]))


def test_a_turn_behind_a_change_that_passed_the_other_version_is_counted() -> None:
    assert figures(CHANGES, [turn(1), turn(22)])["upgrade_not_as_told"] == 1
    assert figures(CHANGES, [turn(1), turn(50, "2")])["upgrade_not_as_told"] == 1
    broken = [*CHANGES, Change("upgrade", THINK, 60 * S, 61 * S, 1, "it was taken back")]
    assert figures(broken, [turn(1)])["upgrade_not_as_told"] == 1


def test_every_target_has_a_figure_and_the_picture_is_drawn(tmp_path: Path) -> None:
    told = [turn(1), turn(12, "2", "new")]
    assert upgrade.TARGETS.keys() <= figures(CHANGES, told).keys()
    found = {"upgrade": detail(CHANGES, told)}
    assert [path.name for path in draw(found, tmp_path)] == ["upgrade.png"]


def test_replicas_are_drawn_above_what_they_follow(tmp_path: Path) -> None:
    found = {
        "targets": {WAITED: 0.1, BUSY: 0.8},
        "replicas": [(0.0, 1), (12.0, 3), (40.0, 1)],
        "people": [2, 9, 2],
        "phases_end_s": [10.0, 30.0, 50.0],
        "measured": [
            {"at_s": 1.0, WAITED: [None], BUSY: [0.5]},
            {"at_s": 12.0, WAITED: [0.4], BUSY: [1.0]},
        ],
    }
    [path] = draw({"scale": found}, tmp_path)
    assert path.name == "scale.png"
    assert imread(path)[..., :3].std() > 0.05
