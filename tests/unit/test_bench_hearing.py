"""What is made of listening: corpora, word errors, and ratios to the best of the peers."""

import hashlib
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from loadtest.downloads import CACHE_VARIABLE, Archive, DebianPackage, DownloadFailed
from loadtest.stages import hearing, recordings
from loadtest.stages.orders import ORDERS
from loadtest.stages.recordings import noisy, prompts


def test_ours_are_held_to_the_peer_that_was_fastest_in_its_median_round() -> None:
    per_s = {
        "shipped": [8.0, 8.0, 8.0],
        "3000_frames": [4.0, 4.4, 4.0],
        "ctranslate2_1x2": [3.0, 3.0, 3.0],
        "ctranslate2_2x1": [4.0, 4.0, 4.0],
        "ctranslate2_4x1": [3.9, 9.9, 1.0],
    }
    found = hearing.hearing_figures(per_s)
    assert found["hearing_shipped_by_ctranslate2"] == 2.0
    assert found["hearing_3000_frames_by_ctranslate2"] == 1.0
    assert found["hearing_ctranslate2_4x1_per_s"] == 3.9
    assert {name for name in hearing.TARGETS if name.startswith("hearing_")} < found.keys()


def test_word_errors_are_counted_over_all_words_not_over_recordings() -> None:
    texts = ["one two three four", "five"]
    assert hearing.error_rate(texts, ["one two three four", "six"]) == 1 / 5
    assert hearing.error_rate(texts, ["", "5"]) == 4 / 5


def test_encoders_are_compared_on_each_corpus_and_on_all_words_together() -> None:
    texts = {"clean": ["a b c d"], "noise": ["e f"]}
    heard = {
        "int8": {"clean": ["a b c x"], "noise": ["e f"]},
        "fp32": {"clean": ["a b c d"], "noise": ["e f"]},
        "ctranslate2": {"clean": ["a b c d"], "noise": ["x x"]},
    }
    found = hearing.encoder_figures(texts, heard)
    assert found["wer_clean_int8"] == 25.0
    by_peers = {name for name in hearing.TARGETS if name.startswith("wer_")}
    assert by_peers
    assert by_peers <= found.keys()
    assert found["wer_all_int8_minus_fp32_points"] == pytest.approx(100 / 6)
    assert found["wer_all_int8_minus_ctranslate2_points"] == pytest.approx(-100 / 6)


def test_prompts_with_notes_comments_and_nothing_to_say_are_left_out() -> None:
    listed = "; Sounds\nhello: Hello: there.\nbeep: [a beep]\nnote: Press (pause) one.\nnone:\n"
    assert prompts(listed) == [("hello", "Hello: there.")]


@pytest.mark.parametrize("noise_db", [10.0, 5.0])
def test_noise_is_so_many_decibels_below_the_speech(noise_db: float) -> None:
    sound = np.sin(np.arange(160_000) / 20).astype(np.float32) * 0.1
    noise = noisy(sound, noise_db, seed=1) - sound
    found = 10 * np.log10(np.mean(sound**2) / np.mean(noise**2))
    assert found == pytest.approx(noise_db, abs=0.2)
    assert np.abs(noisy(10 * sound, 0.0, seed=1)).max() <= 1.0


def test_no_order_is_in_the_samples() -> None:
    samples = (Path(__file__).parents[2] / "samples" / "texts.json").read_text()
    assert not [order for order in ORDERS if order in samples]
    assert len(set(ORDERS)) == len(ORDERS)


def test_a_corpus_that_cannot_be_had_is_missing_and_the_others_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing() -> list[recordings.Spoken]:
        raise DownloadFailed("apt-get is not installed")

    monkeypatch.setattr(recordings, "orders", lambda noise_db: [])
    monkeypatch.setattr(recordings, "people", lambda: [])
    monkeypatch.setattr(recordings, "telephone", nothing)
    found, missing = hearing._corpora()
    assert set(found) == {"orders_clean", "orders_10_db", "orders_5_db", "people"}
    assert missing == {"wer_telephone": "apt-get is not installed"}


@dataclass(frozen=True)
class Copied(Archive):
    """An archive that lies on this machine."""

    origin: str = ""

    def _command(self, scratch: Path) -> Sequence[str]:
        return ["cp", self.origin, str(scratch)]

    def _unpack(self, archive: Path, target: Path) -> None:
        with tarfile.open(archive) as packed:
            packed.extractall(target, filter="data")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "said.txt").write_text("hello")
    path = tmp_path / "clips.tar"
    with tarfile.open(path, "w") as packed:
        packed.add(tmp_path / "said.txt", "said.txt")
    return path


def test_an_archive_is_fetched_once_and_known_by_its_digest(archive: Path) -> None:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    clips = Copied("clips", "1", digest, "MIT", str(archive))
    assert clips.member("said.txt").read_text() == "hello"
    archive.unlink()
    assert clips.member("said.txt").read_text() == "hello"
    with pytest.raises(DownloadFailed, match="is not in clips 1"):
        clips.member("unsaid.txt")


def test_two_who_fetch_at_once_get_the_same(archive: Path) -> None:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()

    class Late(Copied):
        """While it is unpacked here, another process is ready first."""

        def _unpack(self, archive: Path, target: Path) -> None:
            Copied("clips", "1", digest, "MIT", str(archive)).folder()
            super()._unpack(archive, target)

    late = Late("clips", "1", digest, "MIT", str(archive))
    assert late.member("said.txt").read_text() == "hello"
    assert [path.name for path in late.folder().parent.iterdir()] == ["clips-1"]


def test_another_archive_of_that_name_is_refused_and_nothing_is_kept(
    archive: Path, tmp_path: Path
) -> None:
    with pytest.raises(DownloadFailed, match="has sha256"):
        Copied("clips", "1", "0" * 64, "MIT", str(archive)).folder()
    assert not list((tmp_path / "cache" / "recordings").iterdir())


def test_what_is_not_installed_is_named(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DownloadFailed, match="apt-get is not installed"):
        DebianPackage("sounds", "1", "0", "MIT").folder()
