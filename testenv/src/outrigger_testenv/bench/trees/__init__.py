"""Figures of tree models: kernels and serving beside other libraries."""
