"""Compares two programs: the same cases, sent to an earlier commit's and to this one.

Cases are data in `testenv/same`, a folder for each kind. Every case gives an outcome (status,
headers, body, exit code, files), in which times and what is random are masked by rule. A difference
is a fault unless `testenv/same/allowed.yaml` has an entry for it.
"""
