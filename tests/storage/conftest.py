"""How thoroughly properties are tried: fewer examples where each of them is slow."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from kafkafs.storage.format import kernels

# A slow example is no error: the machine is shared, and the kernels may run uncompiled or under a
# sanitizer.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _COMMON, max_examples=100)
settings.register_profile("uncompiled", _COMMON, max_examples=20)
settings.register_profile("long", _COMMON, max_examples=5000)
_UNASKED = "quick" if kernels.COMPILED else "uncompiled"
settings.load_profile(os.environ.get("KAFKAFS_HYPOTHESIS", _UNASKED))
