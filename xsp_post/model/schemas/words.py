"""Coded values of the table ``balance`` → texts for terminal and page: the questions, and the ways of attribution."""

QUESTIONS = {"launch": "Where was it launched?", "layer": "Which layer does it belong to?"}
WAYS = {
    "launch": {
        "nesting": "inside a range of the launching thread",
        "thread_time": "inside a range of another thread",
        "graph": "where the CUDA graph node was made",
        "annotation": "in a region annotated in the CUDA graph",
        "provenance": "in a module that the compiler names",
        "none": "outside every range",
        "no_launch": "without a launch record",
    },
    "layer": {
        "nesting": "the layer around the launch",
        "sequence": "found by autograd sequence number",
        "thread_time": "a layer of another thread",
        "graph": "the layer that made the CUDA graph node",
        "annotation": "annotated in the CUDA graph",
        "provenance": "named by the compiler",
        "twin": "found in the twin capture",
        "hook_pair": "found between two hooks",
        "inferred": "inferred",
        "none": "no layer",
    },
}


def way(question: str, attribution: str) -> str:
    """A way of attribution in words; the value itself where it has none."""
    return WAYS.get(question, {}).get(attribution, attribution.replace("_", " "))
