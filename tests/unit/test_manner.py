"""Whether more is likely to follow, from how a transcript ends."""

import pytest

from python_backends.listening.manner import manner_of
from python_backends.scheduling.endpoint import Manner


@pytest.mark.parametrize(
    ("text", "manner"),
    [
        ("", Manner.UNKNOWN),
        (" ... ", Manner.UNKNOWN),
        ("The Fish Tacos", Manner.UNKNOWN),
        ("I'd like two cheeseburgers.", Manner.COMPLETE),
        ("One hot dog with mustard!", Manner.COMPLETE),
        ("A black coffee,", Manner.HANGING),
        ("We'll take a...", Manner.HANGING),
        ("Could you give me a?", Manner.HANGING),
        ("I'm going to have.", Manner.HANGING),
        ("Do you have?", Manner.HANGING),
        ("Is the soup?", Manner.UNKNOWN),
        ("Is the soup vegetarian?", Manner.CLOSED),
        ("Do you have the fish sandwich from last week?", Manner.CLOSED),
        ("Yes, please.", Manner.CLOSED),
        ("No salsa please", Manner.CLOSED),
        ("Thank you.", Manner.CLOSED),
        ("Thank you very much!", Manner.CLOSED),
        ("And that's all.", Manner.CLOSED),
        ("That will be everything.", Manner.CLOSED),
        ("Please add a bottle of water.", Manner.COMPLETE),
        ("I'd like that with all the", Manner.HANGING),
    ],
)
def test_how_a_transcript_ends(text: str, manner: Manner) -> None:
    assert manner_of(text) is manner
