//! Records of CSV.

use std::{io::Read, str, sync::Arc};

use csv::{ByteRecord, ReaderBuilder};

use crate::{Limits, Names, cell::repeated, error::Cause, records::Counted};

/// The bytes that are read at once.
const BUFFER: usize = 64 << 10;
/// The bytes of memory that a column takes, with what its readers keep for it.
const COLUMN: usize = 256;
/// The records of a file, of which the first is its header if `has_header` is true.
pub(crate) fn records<R: Read>(input: Counted<R>, has_header: bool) -> csv::Reader<Counted<R>> {
    ReaderBuilder::new()
        .buffer_capacity(BUFFER)
        .has_headers(has_header)
        // Rows of another length are reported one by one.
        .flexible(true)
        .from_reader(input)
}

/// Reads the names in the header, without blanks around them.
///
/// # Errors
/// The file cannot be read, or a name is repeated or not UTF-8.
pub(crate) fn header<R: Read>(
    reader: &mut csv::Reader<Counted<R>>,
    limits: &Limits,
) -> Result<Names, Cause> {
    reader.get_mut().allow_row();
    let header = reader.byte_headers().map_err(cause)?;
    let (count, most) = (header.len(), limits.parsed() / COLUMN);
    if count > most {
        let message = format!("the header has {count} columns, more than {most}");
        return Err(Cause::too_large(message));
    }
    let name = |name| str::from_utf8(name).map(|name| Arc::<str>::from(name.trim_ascii()));
    let names = header.iter().map(name);
    let names = names.collect::<Result<Vec<_>, _>>();
    let names = Names::from(names.map_err(|_| Cause::of("the header is not UTF-8"))?);
    match repeated(names.iter().map(|name| &**name)) {
        None => Ok(names),
        Some(name) => {
            Err(Cause::of(format_args!("the column {name:?} stands in the header twice")))
        }
    }
}

/// Reads the next record; false at the end.
///
/// # Errors
/// The file cannot be read, or the record is too long.
pub(crate) fn next_record<R: Read>(
    reader: &mut csv::Reader<Counted<R>>,
    record: &mut ByteRecord,
) -> Result<bool, Cause> {
    reader.get_mut().allow_row();
    reader.read_byte_record(record).map_err(cause)
}

/// The fault of a record that has not as many cells as the header; `None` if it has.
pub(crate) fn width_fault(record: &ByteRecord, expected: usize) -> Option<String> {
    let found = record.len();
    (found != expected).then(|| format!("{found} cells, but the header has {expected}"))
}

fn cause(error: csv::Error) -> Cause {
    let message = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        _ => Cause::of(message),
    }
}
