"""Tree → core tables: ``inferred``, what is known of inferred ranges, and ``execution_candidates``."""

import pandas as pd

from xsp_post.model.confidence import confidence_words
from xsp_post.model.tree import Tree


def inferred_frame(tree: Tree) -> pd.DataFrame:
    known = tree.inferred.drop(columns="arguments", errors="ignore")  # of carried-over operators: for their work only
    known = known.rename(columns={"confidence": "confidence_ratio"})
    return known.assign(confidence=confidence_words(known["confidence_ratio"].to_numpy(float)))


def candidates_frame(tree: Tree) -> pd.DataFrame:
    return tree.execution_candidates.copy()
