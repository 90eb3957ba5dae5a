from pathlib import Path

import pytest

from build import fetch
from build.errors import FetchFailed

SILERO = "silero_vad/data/silero_vad_16k_op15.onnx"


def test_the_committed_notice_lists_every_package() -> None:
    assert fetch.NOTICE_PATH.read_text() == fetch.third_party_notice()


def test_a_member_is_extracted_once_and_kept() -> None:
    first = fetch.member("silero-vad", SILERO)
    written = first.stat().st_mtime_ns
    assert fetch.member("silero-vad", SILERO).stat().st_mtime_ns == written


def test_a_broken_wheel_is_not_trusted_and_the_error_tells_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fetch.CACHE_VARIABLE, str(tmp_path))
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_RETRIES", "0")
    broken = tmp_path / "wheels" / "silero_vad-6.2.3-py3-none-any.whl"
    broken.parent.mkdir()
    broken.write_bytes(b"half a wheel")
    with pytest.raises(FetchFailed) as failure:
        fetch.wheel("silero-vad")
    told = str(failure.value)
    assert "silero-vad==6.2.3" in told
    assert "pip" in told
    assert str(tmp_path) in told
    assert [path.name for path in broken.parent.iterdir()] == [broken.name]


def test_a_file_that_fails_while_it_is_written_never_appears(tmp_path: Path) -> None:
    target = tmp_path / "artefact"
    target.write_text("old")

    def write_half() -> None:
        with fetch.replacing(target) as partial:
            partial.write_text("half")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write_half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
