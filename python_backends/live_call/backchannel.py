"""Words that say no more than "I am listening". English only, as the models are."""

import re

WORDS = re.compile(r"[a-z']+")
BACKCHANNELS = frozenset(
    {"ah", "alright", "cool", "good", "great", "hm", "hmm", "huh", "mhm", "mm", "mmm", "nice"}
    | {"oh", "ok", "okay", "right", "sure", "uh", "uhhuh", "um", "yeah", "yep", "yup"}
)
MOST_WORDS = 3


def is_backchannel(text: str) -> bool:
    """Nothing in it asks for anything: an answer goes on. "Yes" and "no" are answers."""
    words = WORDS.findall(text.lower().replace("-", ""))
    return len(words) <= MOST_WORDS and all(word in BACKCHANNELS for word in words)
