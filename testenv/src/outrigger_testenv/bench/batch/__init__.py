"""The figures of batch jobs."""
