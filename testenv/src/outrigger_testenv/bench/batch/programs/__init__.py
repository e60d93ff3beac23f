"""Programs that run in environments of other projects: ways to score rows without Outrigger."""
