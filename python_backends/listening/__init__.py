"""Live listening: a caller's sound in chunks, to turns of speech and what was said in them."""
