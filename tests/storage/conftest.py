"""Fixtures for the tests of storage."""

from __future__ import annotations

from tests.profiles import use_profile

use_profile()
