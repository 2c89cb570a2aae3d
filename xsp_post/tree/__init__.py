"""Trace → Tree: the steps of `hierarchy.build_tree`, a module each."""
