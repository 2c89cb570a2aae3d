"""What every room may use: errors, findings, output files, progress, harmless text."""
