"""The cloud lab: OpenStack's services on this machine's loopback, nova-compute on a host of the kernel lab."""
