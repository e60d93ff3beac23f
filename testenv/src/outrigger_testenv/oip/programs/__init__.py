"""Programs that run in the environments of other projects' clients."""
