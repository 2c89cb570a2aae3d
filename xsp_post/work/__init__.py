"""Sizes and types of an operator's inputs → the work that one call needs at the least.

`catalogue.work_of` is the entry; `signature` reads what captures say; the formulas lie in one module per family. Pure
functions of one distinct signature: callers evaluate each signature once and map it to all its calls.
"""
