"""Trace → Tree: the capture's ranges and device work as one model → layer → (library) → kernel tree."""

from xsp_post.hierarchy.build import TreeOptions, build_tree
from xsp_post.hierarchy.folding import fold
from xsp_post.hierarchy.level_rules import LevelOptions

__all__ = ["LevelOptions", "TreeOptions", "build_tree", "fold"]
