"""The errors of gpustack, for programs that call it; :mod:`gpustack.base.errors` defines them.

The playbooks of all versions import this module, so it stays.
"""

from gpustack.base.errors import *  # noqa: F403
