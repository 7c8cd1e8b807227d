"""Predict and measure the performance of large language models."""
