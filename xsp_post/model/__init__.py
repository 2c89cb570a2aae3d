"""The values that travel between the rooms: trace, tree, results, capture, counters, levels."""
