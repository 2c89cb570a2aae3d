"""Frames in, frame out: A1…A15 and the paper's evaluation tables (paper, §III). `tables.catalogue` lists them."""
