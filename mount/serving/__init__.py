"""The kernel's requests answered from the tree: the event loop, which alone needs trio."""
