"""The number of hypothesis examples: fewer if each of them is slow.

KAFKAFS_HYPOTHESIS=thorough runs three hundred examples of each property, long five thousand. The
examples differ from run to run, so that few are enough for one run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from kafkafs.storage.format import kernels


def use_profile() -> None:
    """Selects the settings for all tests of the session."""
    # A slow example is no error: the machine is shared, and the kernels may run uncompiled or under
    # a sanitizer.
    common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("quick", common, max_examples=50)
    settings.register_profile("uncompiled", common, max_examples=10)
    settings.register_profile("thorough", common, max_examples=300)
    settings.register_profile("long", common, max_examples=5000)
    unasked = "quick" if kernels.COMPILED else "uncompiled"
    settings.load_profile(os.environ.get("KAFKAFS_HYPOTHESIS", unasked))


def percent(share: int) -> int:
    """Returns this share of the profile's number of examples, for a property whose examples are
    slow."""
    return max(1, settings().max_examples * share // 100)
