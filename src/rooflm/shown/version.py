"""The version of rooflm."""

__version__ = "0.1.0"
