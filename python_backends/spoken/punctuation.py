"""Punctuation to the marks of pause that the voice was trained on: , ; : . ! ?

Brackets, dashes, quotes and ellipses are phonemes of the alphabet too, but no training sentence has
one; the prosody model would draw any length for them.
"""

from python_backends.spoken.rules import Rules

_pauses = Rules(
    (
        # What is only seen: quotes, quoting apostrophes, marks of programs and markup.
        (r"[“”„«»\"]|(?<!\w)'|'(?!\w)", ""),
        (r"\s+", " "),
        (r"<\|[^|<>]*\|>", " "),
        (r" ?(?:-+|=+)> ?", " to "),
        (r" ?&{2,} ?", " and "),
        (r" ?!= ?", " is not "),
        (r"={2,}", "="),
        (r"<-+|[<>]{2,}|#(?!\w)|[`*\\]|[_~^](?!\w)|(?<!\w)_", " "),
        # Brackets and dashes are pauses.
        (r"\((e?s)\)", r"\1"),
        (r"(?<=[^ ,.;:!?=+*/-] )[(\[{]|[)\]}](?= ?\w)|(?<=\w )\|(?= ?\w)", ", "),
        (r"[()\[\]{}|]", " "),
        (r"\s+", " "),
        (r" ?— ?| -+ | ?--+ ?", ", "),
        # A pause is said once.
        (r"(?:…|\.{2,})(?= ?(?:[A-Z]|$))", "."),
        (r" ?(?:…|\.{2,})", ","),
        (r"[!?]*\?[!?]*", "?"),
        (r"!{2,}", "!"),
        (r" +", " "),
        (r" (?=[,.;:!?](?: |$))", ""),
        (r",(?: ?,)+", ","),
        (r", ?(?=[.;:!?](?: |$))", ""),
        (r"(?<=[;:!?]),(?= )", ""),
        (r",(?=[A-Za-z])", ", "),
        (r"^(?:[ ,;:!?]|\.(?!\d)|-+(?!\d))+", ""),
        (r"[ -]+$", ""),
    )
)


def pauses(text: str) -> str:
    """The text on one line, with those marks alone."""
    return _pauses(text).strip()
