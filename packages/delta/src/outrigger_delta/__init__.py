"""Appends the output of a finished batch job of Outrigger to a Delta table, exactly once."""

from outrigger_delta.append import Appended, append
from outrigger_delta.errors import DeltaAppendError, Failed, SettingsError

__all__ = ["Appended", "DeltaAppendError", "Failed", "SettingsError", "append"]
