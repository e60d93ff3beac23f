"""The Open Inference Protocol: servers and clients of other projects that speak it, each in an
environment of its own, and the checks of a server.
"""
