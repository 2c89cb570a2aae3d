"""The paper reproduced: its printed numbers against ours. For people; the package does not import it."""
