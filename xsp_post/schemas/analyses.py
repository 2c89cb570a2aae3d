"""The tables of the analyses A1…A15 and of the paper's evaluation section."""
