"""The project's own voice: teacher data, the three torch modules, their trainers and exporters."""
