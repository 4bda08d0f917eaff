"""Run the playbooks for the commands of gpustack: build the ``ansible-playbook`` command, and read its events.

``ansible-playbook`` runs as a separate process. A callback plugin beside the playbooks writes one JSON line for each
event to a pipe; Ansible's text output goes to a log and is not parsed. ansible-runner does the same with files and a
plugin of its own, but would be one more dependency.
"""
