"""Launches and ranges → what is an execution, what is a block: one finder for sequences of symbols.

The modules, from the bottom: `hashes`, `fold` (loops of a sequence), `labels` (what names of kernels say), `executions`
(which loops are executions), `outline` (what each consists of), `nodes` (one frame of all), `find` (all sequences of a
capture).
"""
