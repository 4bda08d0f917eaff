"""What the guests of GPU flavors need: drivers, packages, the pins of operators."""
