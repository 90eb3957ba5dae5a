"""An ensemble that is walked step by step instead of being run by the server: it can be cancelled,
and is held where a stage is away."""
