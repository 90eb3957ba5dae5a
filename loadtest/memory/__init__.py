"""The seed's second conflict: three curves of different shape in one memory, in virtual time."""
