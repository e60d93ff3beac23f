"""Errors, with the exit codes that `outrigger batch` has for the same kinds."""

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE = "↳"


class DeltaAppendError(Exception):
    """The job's rows are not in the table because of this command; its message is for people."""

    exit_code = 1


class SettingsError(DeltaAppendError):
    """The settings are at fault: another try ends in the same way."""

    exit_code = 64


class Failed(DeltaAppendError):
    """A file, a store or a commit failed: another try may succeed."""

    exit_code = 1


def message(error: BaseException) -> str:
    """The message of an error of the client on one line: its first line and its causes, without
    traces and without the rows that some messages show.
    """
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines() if line.strip()]
    causes = [line.removeprefix(_CAUSE).strip() for line in lines[1:] if line.startswith(_CAUSE)]
    return ": ".join([*lines[:1], *causes]) or type(error).__name__
