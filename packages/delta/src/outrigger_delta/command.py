"""The command `outrigger-delta`."""

import argparse
import dataclasses
import json
import sys

from outrigger_delta.errors import DeltaAppendError, SettingsError
from outrigger_delta.table import Appended, append

_INTERRUPTED = 130

_DESCRIPTION = """\
Appends the rows of a finished `outrigger batch` job to a Delta table in one commit, once: the job's
name is the commit's application transaction, and a job that is in the table is not appended again,
also if several of these commands run at once. Makes the table if there is none."""

_EPILOG = """\
OUTPUT and TABLE are directories, or addresses such as s3://bucket/prefix, gs:// and az://;
credentials come from the environment, as those of `outrigger batch` do. OUTPUT may also be that
of `outrigger batch compact`.

If TABLE is OUTPUT/data, the table is made of the output's own files, and nothing is copied.
Otherwise the rows are copied.

Exit code: 0 if the rows are in the table; 64 if the settings are at fault, for example if the job
is not finished or the table has other columns; 130 after Ctrl-C; 1 for other errors, after which
another try may succeed. The table is as it was unless the code is 0 or the process was killed."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise SettingsError(message)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command with these arguments, or those of the process. Returns the exit code."""
    parser = _Parser(
        prog="outrigger-delta",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("output", metavar="OUTPUT", help="the output of the job")
    parser.add_argument("table", metavar="TABLE", help="the table")
    parser.add_argument(
        "-o", dest="form", choices=("text", "json"), default="text", help="the form of the report"
    )
    try:
        options = parser.parse_args(arguments)
        appended = append(options.output, options.table)
    except DeltaAppendError as error:
        print(f"outrigger-delta: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    is_json = options.form == "json"
    print(json.dumps(dataclasses.asdict(appended)) if is_json else _text(appended))
    return 0


def _text(appended: Appended) -> str:
    job, table = f"job {appended.job}", appended.table
    if appended.is_new:
        how = "copied" if appended.is_copied else "in the job's own files"
        return (
            f"{appended.rows:,} rows of the {job} are in {table}, version {appended.version}: {how}"
        )
    if not appended.files:
        return f"the {job} has no rows: {table} is as it was"
    return f"the {job} is in {table} already: nothing was appended"
