"""The command line: commands parse arguments, call other packages, and print the results."""
