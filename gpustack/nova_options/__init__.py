"""The part of Nova's configuration that each release reads; shared by rendering, flavors and clean-up."""
