"""The figures of the request path: measured, printed and recorded.

`figures` lists them. A new one is an entry there and a function that measures it.
"""
