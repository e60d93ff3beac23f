"""Builds the container image as an OCI image layout, without a container engine.

The Dockerfile's last stage gives the image's configuration; `deploy/image/rootfs` creates its root
filesystem, as in the Dockerfile's own build.
"""
