"""What a mount says of itself and of partitions: status, metrics, reasons, last messages."""
