"""Mounts and unmounts file systems: mount points, the daemon process, the table of mounts."""
