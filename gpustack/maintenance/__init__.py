"""A host in service: what its nova-compute and its guests need around a reboot.

Read → compare → steps, as everywhere: :mod:`.model` is what Nova's API tells, :mod:`.empty` decides what takes a host
out of service, :mod:`.resume` what gives it back, and :mod:`.run` carries steps out and looks again until there is
nothing left. What a run has begun is remembered in Nova alone (:mod:`.marks`), so a run that broke anywhere is taken up
by the next.
"""
