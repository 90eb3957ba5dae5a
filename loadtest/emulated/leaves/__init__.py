"""What config.pbtxt of the emulated models name as `leaf`, `task` and `engine`."""
