"""Reserve GPU hosts: aggregates for projects, and a trait that keeps ordinary instances off."""
