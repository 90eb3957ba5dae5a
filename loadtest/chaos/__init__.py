"""What goes wrong on purpose, and what became of every single turn: `make chaos`, `make soak`."""
