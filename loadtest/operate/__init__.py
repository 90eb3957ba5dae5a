"""What operators do and see, under load: `make bench-operate`."""
