"""The ledger: where the time of devices and of people went, from a run's folder alone."""
