"""Kernel time formulas: one file a kernel family, NumPy only, constants from data/calibration."""
