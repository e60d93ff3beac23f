"""The figures of the request path: measured, printed, written down.

`figures` is the list of them. A new one is an entry there and a function that
measures it.
"""
