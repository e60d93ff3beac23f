"""Stores of objects for tests: servers of other projects that speak the interfaces of S3, Azure
Blob Storage and Google Cloud Storage.
"""
