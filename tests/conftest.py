"""Settings of all tests: properties are drawn alike in every run and have no deadline: slow machines pass. Long tests
start first."""

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the hub; those of it have a stand-in
settings.register_profile("rooflm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rooflm")

LONGEST = (
    "test_measure_real.py", "test_measure.py", "test_study.py", "test_calibrate.py", "test_browser.py", "test_ray.py",
    "test_explore_front.py", "test_an_answer_or_a_sentence[infer]", "test_an_answer_or_a_sentence[train]",
    "test_no_cell_raises", "test_the_site_builds", "test_types_of_a_users_script", "test_output_is_of_today",
    "test_an_answer_or_a_sentence", "test_notebooks.py", "test_every_path", "test_grids.py", "test_words_keep_apart",
    "test_kills.py", "test_stream.py", "test_faults.py", "test_compare.py", "test_twelve.py", "test_guard.py",
    "test_search_train.py", "test_why.py",
)  # fmt: skip
"""Parts of the names of the tests that take longest, as `pytest --durations=80` tells them. One that starts when the
others are done keeps one core busy and the rest idle; a name that is missing here costs time and nothing else."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first, all others in their usual order."""
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: min((n for name, n in rank.items() if name in item.nodeid), default=len(rank)))
