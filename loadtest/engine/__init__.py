"""The AR engine beside its peers, behind the server, and beside itself: `make bench-engine`."""
