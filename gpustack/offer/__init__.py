"""What projects get: flavors, quotas, tenancy, images, guests."""
