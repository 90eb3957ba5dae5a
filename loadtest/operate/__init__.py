"""How the product is operated: scaled, upgraded, watched. Emulated."""
