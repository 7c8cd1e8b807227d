"""Settings of all tests: properties are drawn alike in every run and have no deadline: slow machines pass."""

from hypothesis import HealthCheck, settings

settings.register_profile("rooflm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rooflm")
