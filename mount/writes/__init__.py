"""The write path of a writable mount: how file operations change logs and topics."""
