"""The user's side: typed clients (`client.turns`), audio files, and a command line."""
