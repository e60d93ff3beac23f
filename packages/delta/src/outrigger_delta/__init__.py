"""Appends the output of a finished batch job of Outrigger to a Delta table, exactly once."""

from outrigger_delta.errors import DeltaAppendError, Failed, SettingsError
from outrigger_delta.table import Appended, append

__all__ = ["Appended", "DeltaAppendError", "Failed", "SettingsError", "append"]
