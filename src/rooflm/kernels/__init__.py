"""Kernel times: one pure formula a kernel family, with a handful of fitted constants."""
