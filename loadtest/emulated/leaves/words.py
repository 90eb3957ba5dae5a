"""What emulated thinking says, and where a version of it says something else."""

WORDS = "emulated piece"
"""Before the number of each piece."""

WORDS_FILE = "words.txt"
"""In the version folder: other words."""

BROKEN = "broken"
"""A version with these words cannot be loaded."""
