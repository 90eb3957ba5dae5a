"""Any text to words that the voice can read aloud, and those to phonemes."""

from python_backends.spoken.phonemes import Phonemizer
from python_backends.spoken.words import spoken_text

__all__ = ["Phonemizer", "spoken_text"]
