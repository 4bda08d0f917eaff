"""The desired state of a host: the functions that are passed through, their drivers, kernel arguments and files."""
