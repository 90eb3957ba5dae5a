"""Single stages measured on their own graphs, in this process and without a server."""
