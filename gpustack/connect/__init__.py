"""How gpustack reaches hosts: over SSH, and with Ansible's playbooks."""
