"""A Kubernetes API server with its job controller, a client of it, and a kubelet that runs pods as
processes of this machine.
"""
