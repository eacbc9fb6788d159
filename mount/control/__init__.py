"""`.kafkafs/control`: a file through which programs send commands to a writable mount."""
