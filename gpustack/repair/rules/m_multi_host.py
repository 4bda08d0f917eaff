"""Class M: one instance holds devices of several compute nodes and is placed on none of them.

If it is placed on one of them, the rows of the others are in class A or B.
"""

# Classes A, B and C report these rows, with the rows on other nodes as evidence.
CLASS = "M"
TITLE = "devices of several hosts"
