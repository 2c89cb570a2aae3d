"""NumPy arithmetic: intervals, roll-up, repeats, statistics."""
