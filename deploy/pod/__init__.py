"""One server of a plan as a container: told by DNS, asked by probes, ended by SIGTERM."""
