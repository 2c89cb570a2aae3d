"""Causes of waiting and predicted gains: idle time by cause, dependencies, the recorded order simulated again.

The idle side explains what was: `idle` (window − busy, cut at gaps), `causes` (what the launching thread did).
The simulation side asks what would be: `graph`, `simulate`, `what_if`, `critical_path`, `collectives`.
"""
