"""Images in Glance: whether instances of GPU flavors can use them, and which properties they lack."""
