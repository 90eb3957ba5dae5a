"""Whisper tiny.en: CTranslate2 weights, the reference model and its graphs."""
