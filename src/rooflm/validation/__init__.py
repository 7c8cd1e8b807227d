"""Validation: measured runs -> predictions, and the summary of how far they are off."""

from rooflm.validation.columns import COLUMNS
from rooflm.validation.metrics import ape, describe
from rooflm.validation.request import METRICS, Outcome, Request, Skip
from rooflm.validation.sizes import model_from_sizes
from rooflm.validation.table import published_tables, read_rows

__all__ = [
    "COLUMNS", "METRICS", "Outcome", "Request", "Skip", "ape", "describe", "model_from_sizes", "published_tables",
    "read_rows",
]  # fmt: skip
