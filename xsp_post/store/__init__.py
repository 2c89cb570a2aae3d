"""``<stem>.xsp.sqlite``: writing and reading results as one SQLite file, and the layout of large tables."""
