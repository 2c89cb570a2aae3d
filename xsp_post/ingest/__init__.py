"""Captures in: files → `trace.Trace` (or `counters.CounterReport`). Raw Nsight names stop here."""
