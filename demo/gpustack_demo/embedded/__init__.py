"""Real OpenStack services on this machine's loopback, for tests and for the demo.

* :class:`gpustack_demo.embedded.cloud.EmbeddedCloud` — Keystone, Placement and the Nova API, each a process of its own:
  what openstacksdk, python-novaclient and the ``openstack`` command talk to. It keeps flavors, and builds no servers.
* :class:`gpustack_demo.embedded.nova.EmbeddedNova` — Nova in one other process: API, scheduler, conductor, Placement
  and any number of nova-compute services whose libvirt is Nova's own test double, with the PCI devices that a test
  gives them. It builds, moves and deletes servers. Its :attr:`~gpustack_demo.embedded.nova.EmbeddedNova.control` stops
  services, makes steps fail and reports which guest holds which device.

Each release runs from a virtual environment of its own under ``~/.cache/gpustack``, made by
``python -m gpustack_demo.embedded.install RELEASE``. Nothing of Nova is imported here: what must run beside Nova's code
lies in ``inside/`` and is only ever run by that environment's Python.
"""
