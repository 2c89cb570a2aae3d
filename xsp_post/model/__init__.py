"""The values that are passed between packages: trace, tree, results, capture, counters, levels."""
