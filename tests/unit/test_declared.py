"""What a model declares is read strictly, and the KV cache follows from its other parameters."""

import pytest

from python_backends.declared import Declared
from python_backends.sizes import RowBytes, byte_count, told_bytes

LOOP = {
    "slots": "8",
    "capacity": "100",
    "bytes_process": "10MiB",
    "bytes_weights": "20MiB",
    "bytes_kv_token": "1000",
    "bytes_kv_row": "5000",
    "bytes_activation": "1MiB",
}


def declared(**more: str) -> Declared:
    found = Declared.of(LOOP | more)
    assert found is not None
    return found


def test_a_model_without_any_declares_nothing() -> None:
    assert Declared.of({"slots": "8", "session_bytes": "5"}) is None


def test_the_cache_takes_slots_times_capacity_and_their_context() -> None:
    assert declared().kv == 8 * (100 * 1000 + 5000)
    assert declared(slots="9").kv == 9 * (100 * 1000 + 5000)
    assert declared(session_bytes="7").kv == declared().kv + 7


def test_each_engine_has_weights_and_a_cache_of_its_own() -> None:
    one, two = declared(session_bytes="7"), declared(session_bytes="7", engines="2")
    assert two.weights == 2 * one.weights
    assert two.activation == 2 * one.activation
    assert two.kv - 7 == 2 * (one.kv - 7)
    assert two.process == one.process


def test_an_engine_behind_bls_is_declared_by_its_own_model() -> None:
    found = declared(engine="bls")
    assert (found.weights, found.kv, found.activation) == (0, 0, 0)
    assert found.total == found.process == 10 * 2**20


def test_the_total_is_the_sum_of_the_parts_and_growth_is_no_part() -> None:
    found = declared(bytes_requests="3", bytes_per_input="2", bytes_shm="4")
    assert set(found.parts) == {"process", "weights", "kv", "activation", "requests", "shm"}
    assert found.total == sum(found.parts.values())
    assert found.per_input == 2
    assert declared().per_input == 1


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"bytes_wieghts": "1MiB"},
            r"unknown .*\['bytes_wieghts'\]; known: bytes_process",
        ),
        ({"bytes_shm": "1Mib"}, r"parameter 'bytes_shm' is '1Mib'; a size is a number with one of"),
        ({"bytes_shm": "-1"}, "parameter 'bytes_shm' is '-1'"),
    ],
)
def test_what_cannot_be_read_is_named(more: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        declared(**more)


def test_a_cache_that_is_larger_than_declared_is_refused() -> None:
    declared().check_kv(declared().kv)
    Declared().check_kv(10**12)
    with pytest.raises(ValueError, match="KV cache takes 840001 bytes, and 840000 are declared"):
        declared().check_kv(declared().kv + 1)


def test_sizes_are_written_as_people_do() -> None:
    assert byte_count("1.5 GiB") == 3 * 2**29
    assert byte_count("90MB") == 90_000_000
    assert byte_count(7) == 7
    assert told_bytes(3 * 2**29) == "1.5 GiB"
    with pytest.raises(ValueError, match="a size is a number"):
        byte_count("ninety")


def test_a_row_takes_what_was_measured_at_the_next_longer_one() -> None:
    law = RowBytes.read("100=10KiB, 200=40KiB")
    assert [law(length) for length in (1, 100, 101, 200)] == [10240, 10240, 40960, 40960]
    assert law(400) == 81920
    assert RowBytes.read("")(400) == 0


@pytest.mark.parametrize("text", ["100", "200=1KiB, 100=2KiB", "a=1KiB", "0=1KiB", "100=much"])
def test_a_law_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"lengths with their bytes|a size is a number"):
        RowBytes.read(text)
