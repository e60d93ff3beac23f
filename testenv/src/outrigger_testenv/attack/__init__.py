"""`make attack`: hostile packages, registries, callers and models against the real processes.

Every case attacks a control plane with its engine on loopback, while a neighbour predicts and the
health listener is probed. The table says for each case what it cost the others.
"""
