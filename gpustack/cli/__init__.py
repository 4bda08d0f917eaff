"""The command line: commands parse, call and print; what they print is computed elsewhere."""
