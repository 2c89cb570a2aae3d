"""Tree → the core tables of one capture (`schemas.results`), a module for each or for some together."""
