"""Take a host out of service for a reboot, and restore it: its nova-compute and its instances.

Read, compare, act: :mod:`.model` is the data of Nova's API, :mod:`.drain` plans how to empty a host, :mod:`.restore`
how to bring it back. :mod:`.run` carries steps out and reads again until nothing is left to do. The state of a run is
stored in Nova only (:mod:`gpustack.cloud.marks`), so the next run continues an interrupted one.
"""
