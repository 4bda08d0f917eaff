"""What still fits: how many more instances of each flavor, on which hosts, and why not more."""
