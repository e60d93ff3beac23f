"""Counts what a request, a row, a pushed tag and an idle minute cost the control plane.

Programs run under callgrind on one processor, so that two runs give the same counts: user
instructions, blocks that are allocated, bytes that are copied and system calls. `testenv/cost` has
the counts of the commits that later ones are held against.
"""
