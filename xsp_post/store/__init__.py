"""``<stem>.xsp.sqlite``: writing and reading results as one SQLite file, and how large tables lie in it."""
