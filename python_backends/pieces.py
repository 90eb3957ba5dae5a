"""The flags in PIECE int32 [3]: piece, chunk, flags."""

LAST_CHUNK = 1
"""Of its piece."""

LAST_PIECE = 2
"""Of its turn; set on every chunk of that piece."""

NO_SOUND = 4
"""The piece has nothing to say: SPEECH is to be ignored."""
