"""Fit the kernel formulas to tables of measured kernel times; needs the `fit` extra (pandas, pyarrow, scipy)."""
