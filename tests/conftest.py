"""Settings of all tests: properties are drawn alike in every run and have no deadline, so that a slow machine passes."""

from hypothesis import HealthCheck, settings

settings.register_profile("rooflm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rooflm")
