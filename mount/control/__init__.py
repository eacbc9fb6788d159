"""`.kafkafs/control`: a conversation, its verbs, and lines that become records through it."""
