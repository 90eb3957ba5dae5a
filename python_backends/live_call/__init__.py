"""A spoken conversation on one stream: what was said is answered, and whoever is spoken to may
interrupt."""
