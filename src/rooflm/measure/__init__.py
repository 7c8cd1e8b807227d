"""Measure real models on the machine at hand. The only part of rooflm that imports torch, and only inside its workers.

case.py says what is measured, runner.py starts a fresh process (or one a rank) for each case and keeps finished ones,
the workers (infer, train, accuracy, micro) do the measuring, results.py holds the tidy table.
"""
