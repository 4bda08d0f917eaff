"""Nova's configuration: render it for a deployment, and check an existing one."""
