"""The arrow ``reports``: results → charts, one self-contained HTML page, and the same numbers as JSON.

``data(results)`` of an exhibit module (`layers`, `kernels`, `rooflines` …) gives a frame, ``chart(frame)`` an
Altair chart of it. They see `analysis.Results` only.
"""
