"""Damaged sources by seed, and what must hold for every one of them (scripts/fuzz)."""
