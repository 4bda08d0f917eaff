"""Terms that all packages share: text, files, errors, findings, host names, metrics."""
