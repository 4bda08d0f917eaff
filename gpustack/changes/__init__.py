"""Changes to a cloud or a database: plan, carry out, record."""
