"""Used by all packages: errors, findings, output files, progress, safe text."""
