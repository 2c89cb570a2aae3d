"""Results → charts, one self-contained HTML page, and the same numbers as JSON.

`page.txt` lists sections, tables and charts; `frames` has what they show, `draw` draws a row of it as an Altair chart;
`charts` gives all of a report's charts by id. They see `analysis.Results` only.
"""

from xsp_post.base.lazy import lazily

# Altair takes a third of a second
__getattr__ = lazily(__name__, {
    "charts": "images", "to_png": "images", "to_svg": "images", "write_report": "html", "render": "html",
    "report_dict": "json_form", "build": "document",
})  # fmt: skip
