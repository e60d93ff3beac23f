"""The columns of a Delta table for the columns of a job's output.

Types of Delta Lake: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#primitive-types
"""

from collections.abc import Callable

import pyarrow as pa

from outrigger_delta.errors import SettingsError

# Types that a column of Parquet and a column of Delta both have.
_SAME: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date32,
    pa.types.is_decimal128,
)
# Unsigned integers and half floats become the next type that has all their values. Of UINT64 there
# is none: a value of more than 63 bits is an error when the rows are converted.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a table for these columns, all of which may be absent. Raises SettingsError
    if Delta has no type for one.
    """
    return pa.schema([pa.field(field.name, _column(field)) for field in schema])


def first_converted(schema: pa.Schema) -> str | None:
    """The first column whose values need another form in a table with the columns of
    `delta_schema`; None if files with these columns may be files of such a table.
    """
    for field in schema:
        # A table with timestamps without a zone needs a feature that must be set when it is made.
        if _has_naive_time(field.type) or _plain(field.type) != _column(field):
            return field.name
    return None


def difference(schema: pa.Schema, table: pa.Schema) -> str | None:
    """The first column in which the columns of `delta_schema` differ from those of a table in name
    or type; None if they are the same in any order.
    """
    for name in schema.names:
        if name not in table.names:
            return f"the table has no column {name}"
        found, wanted = schema.field(name).type, _plain(table.field(name).type)
        if found != wanted:
            return f"{name} is {found} in the output and {wanted} in the table"
    for name in table.names:
        if name not in schema.names:
            return f"the output has no column {name}"
    return None


def _column(field: pa.Field) -> pa.DataType:
    try:
        return _delta_type(_plain(field.type))
    except TypeError:
        raise SettingsError(
            f"the column {field.name} is {field.type}, for which Delta Lake has no type"
        ) from None


def _has_naive_time(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_naive_time(kind.field(index).type) for index in range(kind.num_fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without what differs in memory only: the size of offsets, the names and the
    nullability of items.
    """
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _plain(item.type)) for item in kind.fields])
    return kind


def _delta_type(kind: pa.DataType) -> pa.DataType:
    """The type of Delta for a plain type. Raises TypeError if there is none."""
    if any(is_kind(kind) for is_kind in _SAME) or kind in (pa.string(), pa.binary()):
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_delta_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _delta_type(item.type)) for item in kind.fields])
    raise TypeError(kind)
