"""Real OpenStack services on this machine's loopback, for tests and for the demo.

* :class:`gpustack_demo.embedded.cloud.EmbeddedCloud` — Keystone, Placement and the Nova API in separate processes, for
  openstacksdk, python-novaclient and the ``openstack`` command. It stores flavors, but cannot boot servers.
* :class:`gpustack_demo.embedded.nova.EmbeddedNova` — Nova in one separate process: API, scheduler, conductor, Placement
  and any number of nova-compute services. Their libvirt is Nova's own test double, with the PCI devices that a test
  defines. It boots, moves and deletes servers. Its :attr:`~gpustack_demo.embedded.nova.EmbeddedNova.control` stops
  services, injects faults and reports the devices of each instance. On request, Keystone, Glance and Neutron run too.

Each release runs from its own virtual environment under ``~/.cache/gpustack``, created by
``python -m gpustack_demo.embedded.install RELEASE``. This package does not import Nova: code that runs with Nova is in
``inside/`` and runs only with that environment's Python.
"""
