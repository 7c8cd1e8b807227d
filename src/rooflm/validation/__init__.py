"""Validation: published rows -> scenario requests, and the summary of how far predictions are off."""

from rooflm.validation.metrics import ape, describe, summarise
from rooflm.validation.request import METRICS, Outcome, Request, ServeRequest, Skip
from rooflm.validation.rows import published_tables, read_rows

__all__ = [
    "METRICS",
    "Outcome",
    "Request",
    "ServeRequest",
    "Skip",
    "ape",
    "describe",
    "published_tables",
    "read_rows",
    "summarise",
]
