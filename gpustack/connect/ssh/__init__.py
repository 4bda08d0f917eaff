"""SSH connections to hosts: configuration, known hosts, authentication, and running a Python program on a host."""
