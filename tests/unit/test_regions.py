"""Large inputs by shared memory: placed, referred to, given back."""

import random
from pathlib import Path

import numpy as np
import pytest

from python_backends import wire
from python_backends.regions import Block, Region


@pytest.fixture
def region(tmp_path: Path) -> Region:
    return Region("test-region", 4096, tmp_path)


def test_what_is_put_can_be_read_by_another_process_that_maps_the_file(
    region: Region, tmp_path: Path
) -> None:
    values = np.arange(10, dtype=np.float32)
    block = region.put({"A": values, "B": values[::2]})
    assert block is not None
    raw = (tmp_path / "test-region").read_bytes()
    for name, expected in (("A", values), ("B", values[::2])):
        place = block.places[name]
        found = np.frombuffer(raw[place.offset : place.offset + place.size], np.float32)
        assert found.tolist() == expected.tolist()


def test_where_there_is_no_room_nothing_is_put_until_something_is_given_back(
    region: Region,
) -> None:
    large = {"A": np.zeros(3000, np.uint8)}
    block = region.put(large)
    assert block is not None
    assert region.put(large) is None
    region.give_back(block)
    assert region.put(large) is not None


def test_blocks_never_overlap_whatever_is_put_and_given_back(region: Region) -> None:
    draw, taken = random.Random(1), list[Block]()
    for _ in range(2000):
        if taken and draw.random() < 0.5:
            region.give_back(taken.pop(draw.randrange(len(taken))))
        else:
            block = region.put({"A": np.zeros(draw.randrange(1, 900), np.uint8)})
            taken += [block] if block is not None else []
        region.check_integrity()
    assert taken


def test_a_request_refers_to_what_is_shared_and_sends_the_rest(region: Region) -> None:
    inputs = {"A": np.ones((1, 4), np.float32), "B": np.ones((1, 2), np.int32)}
    block = region.put({"A": inputs["A"]})
    assert block is not None
    request = wire.to_request("m", inputs, turn="t", parameters={}, shared=block.places)
    first, second = request.inputs
    assert first.parameters["shared_memory_region"].string_param == "test-region"
    assert first.parameters["shared_memory_byte_size"].int64_param == 16
    assert "shared_memory_region" not in second.parameters
    assert list(request.raw_input_contents) == [inputs["B"].tobytes()]


def test_a_closed_region_leaves_no_file(region: Region, tmp_path: Path) -> None:
    region.close()
    assert list(tmp_path.iterdir()) == []
