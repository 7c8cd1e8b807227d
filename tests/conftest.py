"""Settings of all tests: properties are drawn alike in every run and have no deadline: slow machines pass. Long tests
start first."""

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the hub; those of it have a stand-in
settings.register_profile("rooflm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rooflm")

LONGEST = (
    "test_measure_real.py", "test_measure.py", "test_errors_of_some_sources", "test_browser.py", "test_study.py",
    "test_calibrate.py", "test_ray.py", "test_explore_front.py", "test_an_answer_or_a_sentence[infer]",
    "test_an_answer_or_a_sentence[train]", "test_no_cell_raises", "test_the_site_builds", "test_output_is_of_today",
    "test_an_answer_or_a_sentence", "test_notebooks.py", "test_every_path", "test_grids.py", "test_words_keep_apart",
    "test_kills.py", "test_stream.py", "test_faults.py", "test_compare.py", "test_twelve.py", "test_guard.py",
    "test_search_train.py", "test_why.py",
)  # fmt: skip
"""Parts of the names of the tests that take longest, as `pytest --durations=80` tells them. One that starts when the
others are done keeps one core busy and the rest idle; a name that is missing here costs time and nothing else."""


TOGETHER = {"tests/measure/test_measure": "torch", "transformers": "torch"}
"""What stands in a test's name -> a group of tests that goes to one process, for what they all import or start."""
APART = ("tests/docs/", "tests/examples/", "tests/fuzz/", "tests/properties/test_grids.py")
"""Where tests take long and share nothing: each goes by itself."""


def group(name: str) -> str:
    """The tests that go to one process with this one: those of its file, which share fixtures and what was loaded."""
    found = [of for part, of in TOGETHER.items() if part in name]
    return found[0] if found else name if name.startswith(APART) else name.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whatever --dist says, groups in the order of their first tests (pytest 9.2 drops what xdist's own groups rest
    on)."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        """Tests by `group`."""

        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes stays to the end: the garbage collector does not go through it, then or ever after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first, all others in their usual order."""
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: min((n for name, n in rank.items() if name in item.nodeid), default=len(rank)))
