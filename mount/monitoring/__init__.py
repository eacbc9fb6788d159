"""The files in which a mount reports on itself and on partitions: status, metrics, log."""
