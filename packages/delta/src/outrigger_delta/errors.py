"""Errors, with the exit codes that `outrigger batch` has for the same kinds."""


class DeltaAppendError(Exception):
    """The job's rows are not in the table because of this command; its message is for people."""

    exit_code = 1


class SettingsError(DeltaAppendError):
    """The settings are at fault: another try ends in the same way."""

    exit_code = 64


class Failed(DeltaAppendError):
    """A file, a store or a commit failed: another try may succeed."""

    exit_code = 1
