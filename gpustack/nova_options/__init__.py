"""What Nova reads of its configuration, release by release: shared ground of rendering, flavors and clean-up."""
