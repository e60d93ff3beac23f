"""The Helm chart under test: rendered, checked, and run without a cluster."""
