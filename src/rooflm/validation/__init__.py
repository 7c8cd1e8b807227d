"""Validation: published rows -> scenario requests, and the summary of how far predictions are off."""

from rooflm.validation.metrics import ape, describe, summarise
from rooflm.validation.readers.sizes import model_from_sizes
from rooflm.validation.readers.tables import labels, published_tables, read_rows
from rooflm.validation.request import METRICS, Outcome, Request, ServeRequest, Skip

__all__ = [
    "METRICS",
    "Outcome",
    "Request",
    "ServeRequest",
    "Skip",
    "ape",
    "describe",
    "labels",
    "model_from_sizes",
    "published_tables",
    "read_rows",
    "summarise",
]
