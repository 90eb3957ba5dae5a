"""What is read of /metrics."""

import http.client
import io
import urllib.request
from typing import Any

import pytest

from deploy.errors import ServerFailed
from deploy.figures import read_metrics, rows

TOLD = """
# TYPE tristage_open_requests gauge
tristage_open_requests{stage="think",started="1"} 3
tristage_open_requests{stage="think",started="4"} 2
tristage_open_requests{stage="think",started="2",version="2"} 5
tristage_open_requests{stage="think",started="3",version="2"} 7
"""


def test_of_a_stage_the_newest_process_tells() -> None:
    assert [row.value for row in rows(TOLD)] == [2]


@pytest.mark.parametrize(("version", "told"), [(1, [2]), (2, [7]), (3, [])])
def test_of_a_version_the_newest_that_serves_it(version: int, told: list[float]) -> None:
    """The other version may have been started again since."""
    assert [row.value for row in rows(TOLD, version)] == told


def test_what_cannot_be_read_is_a_failure_of_the_server() -> None:
    with pytest.raises(ServerFailed, match="cannot be read"):
        rows('tristage_open_requests{stage="think"} many')


@pytest.mark.parametrize(
    "fault", [http.client.IncompleteRead(b""), http.client.BadStatusLine(""), TimeoutError()]
)
def test_an_answer_that_breaks_off_is_one_too(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Torn(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise fault

    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Torn())
    with pytest.raises(ServerFailed, match="no metrics at here"):
        read_metrics("here")
