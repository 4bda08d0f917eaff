"""Example hosts, written as directory roots, and stand-ins for parts that only a real machine has.

:mod:`gpustack_demo.examples.hosts` describes machines, :func:`gpustack_demo.examples.host.write_host` writes one as a
directory that looks like a host's ``/``: sysfs, procfs, boot loader, kernel modules, initramfs. Nothing needs
root rights. :mod:`gpustack_demo.examples.standin` plays the distribution's tools and the kernel on such a directory.
The demo and the tests use both. :mod:`gpustack_demo.examples.cloud` starts a real Nova with these hosts for the demo.

Nothing here may import :mod:`gpustack.prepare.host`: the stand-ins implement the kernel's behaviour independently, so
that a wrong plan leads to a wrong boot.
"""
