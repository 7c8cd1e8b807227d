"""Settings of all tests: properties are drawn alike in every run and have no deadline: slow machines pass."""

import os

from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the hub; those of it have a stand-in
settings.register_profile("rooflm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rooflm")
