"""The container image as an OCI image layout, made without a container engine.

The Dockerfile's last stage says what the image is; its root filesystem is laid out by
`deploy/image/rootfs`, as in the Dockerfile's own build.
"""
