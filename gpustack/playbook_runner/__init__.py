"""The playbooks, driven for those who don't want to call ``ansible-playbook``: what it is called with, what it tells.

``ansible-playbook`` runs as a process of its own. A callback plugin beside the playbooks writes one JSON line for each
thing that happens to a pipe, and nothing is parsed out of text for people, which goes to a log. ansible-runner
would do the same through files and a plugin of its own: a dependency, where a pipe and sixty lines are enough.
"""
