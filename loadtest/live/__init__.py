"""Live calls measured: people who speak in real time, hear their answers, and interrupt them."""
