"""Free the GPUs of idle instances: stopped for long, or expired. The instances are shelved after a notice.

Read, compare, act: :mod:`.read` reads candidates, :mod:`.decide` compares them with the rules of the spec, and
:mod:`.changes` carries steps out, and reads each instance again directly before. Nothing is ever deleted.
"""
