"""One plan over flavors, quotas, tenancy and images: what a cloud needs to match a spec, in an order that is safe."""
