//! The binary form of alphaFM, version 1, little-endian.
//!
//! A head of seven u64: version, bytes of a number (8 or 4), length of the vectors, number of
//! records, number of records that are not zero, 1 if the file is complete, bytes of a record's
//! numbers. Each record is the length of a name as u16, the name, and the numbers `w w_n w_z`,
//! `v1 .. vk`, `v_n1 .. v_nk`, `v_z1 .. v_zk`, of which only `w` and `v` are needed. The first
//! record is `bias`, whose vectors have no meaning.

use std::io::BufRead;

use crate::{
    Error, Skipped,
    read::{
        Fault, Faults, Features, File,
        lines::{fill, quoted},
    },
    table::{Growing, Shape},
};

/// A file that is read from its beginning to its end.
struct Bytes<'a> {
    file: &'a mut dyn BufRead,
    /// Bytes of the file that have not been read.
    remaining: u64,
}

impl Bytes<'_> {
    /// Passes the next `count` bytes to `take`, in pieces.
    fn pieces(
        &mut self,
        mut count: u64,
        faults: &Faults,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        if count > self.remaining {
            return Err(faults.invalid("it ends too early"));
        }
        self.remaining -= count;
        while count > 0 {
            let available = fill(self.file).map_err(|error| faults.io(error))?;
            let within = available.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            if within == 0 {
                return Err(faults.invalid("it ends too early"));
            }
            take(&available[..within]);
            self.file.consume(within);
            count -= within as u64;
        }
        Ok(())
    }

    /// Reads the next bytes.
    fn read(&mut self, bytes: &mut [u8], faults: &Faults) -> Result<(), Error> {
        let mut filled = 0;
        self.pieces(bytes.len() as u64, faults, |piece| {
            bytes[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        })
    }

    fn array<const N: usize>(&mut self, faults: &Faults) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.read(&mut bytes, faults)?;
        Ok(bytes)
    }

    fn skip(&mut self, count: u64, faults: &Faults) -> Result<(), Error> {
        self.pieces(count, faults, |_| {})
    }
}

/// The head of a file.
struct Head {
    /// True if numbers are f64, otherwise they are f32.
    double: bool,
    factors: usize,
    records: u64,
}

impl Head {
    fn read(bytes: &mut Bytes<'_>, faults: &Faults) -> Result<Self, Error> {
        let mut words = [0; 7];
        for word in &mut words {
            *word = u64::from_le_bytes(bytes.array(faults)?);
        }
        let [version, width, factors, records, _, complete, length] = words;
        if version != 1 {
            return Err(faults.invalid(format!("its version is {version} instead of 1")));
        }
        if complete != 1 {
            return Err(faults.invalid("it was not written to its end"));
        }
        if width != 4 && width != 8 {
            return Err(faults.invalid(format!("its numbers have {width} bytes")));
        }
        if factors.saturating_add(1).saturating_mul(3 * width) != length {
            let text = format!("{length} bytes of a record do not fit {factors} factors");
            return Err(faults.invalid(text));
        }
        if records == 0 || records.saturating_mul(length) > bytes.remaining {
            return Err(faults.invalid(format!("{records} records do not fit its length")));
        }
        let factors = usize::try_from(factors).unwrap_or(usize::MAX);
        Ok(Self { double: width == 8, factors, records })
    }

    fn width(&self) -> usize {
        if self.double { 8 } else { 4 }
    }
}

/// The records of a file.
struct Records<'a> {
    bytes: Bytes<'a>,
    head: Head,
    name: Vec<u8>,
    /// The numbers of the last record, as bytes: `w`, and the vector.
    numbers: Vec<u8>,
}

impl Records<'_> {
    /// Reads the next record.
    fn read(&mut self, faults: &mut Faults) -> Result<(), Error> {
        faults.number += 1;
        let length = u16::from_le_bytes(self.bytes.array(faults)?);
        self.name.resize(length.into(), 0);
        self.bytes.read(&mut self.name, faults)?;
        let width = self.head.width();
        let state = width as u64;
        let (weight, vector) = self.numbers.split_at_mut(width);
        self.bytes.read(weight, faults)?;
        self.bytes.skip(2 * state, faults)?;
        self.bytes.read(vector, faults)?;
        self.bytes.skip(2 * state * self.head.factors as u64, faults)
    }

    /// The first `count` numbers of the record.
    fn values(&self, count: usize, values: &mut Vec<f32>) -> Result<(), Fault> {
        values.clear();
        for number in self.numbers.chunks_exact(self.head.width()).take(count) {
            let number = match number {
                [a, b, c, d] => f32::from_le_bytes([*a, *b, *c, *d]),
                number => number.try_into().map_or(0.0, f64::from_le_bytes) as f32,
            };
            if !number.is_finite() {
                return Err(format!("{number} is no finite number"));
            }
            values.push(number);
        }
        Ok(())
    }
}

/// Checks the head of a binary file.
pub(super) fn check(file: File<'_>, features: &Features<'_>) -> Result<(), Error> {
    let mut bytes = Bytes { file: file.content, remaining: file.size };
    Head::read(&mut bytes, &features.faults).map(drop)
}

/// Reads a binary file.
pub(super) fn read(
    file: File<'_>,
    mut features: Features<'_>,
) -> Result<(Growing, Skipped), Error> {
    let mut bytes = Bytes { file: file.content, remaining: file.size };
    let head = Head::read(&mut bytes, &features.faults)?;
    let shape = Shape { classes: 1, factors: head.factors, softmax: false };
    let mut values = features.budget.filled(0.0, shape.in_file())?;
    let numbers = features.budget.filled(0, shape.in_file() * head.width())?;
    let mut records = Records { bytes, head, name: Vec::new(), numbers };
    let bias = bias(&mut records, &mut features.faults)?;
    let mut table = Growing::new(shape, vec![bias], features.budget)?;
    for _ in 1..records.head.records {
        records.read(&mut features.faults)?;
        let read = records.values(shape.in_file(), &mut values);
        match read.and_then(|()| features.id(&records.name)) {
            Ok(id) => features.add(id, &values, &mut table, true)?,
            Err(fault) => features.faults.found(fault)?,
        }
    }
    if records.bytes.remaining > 0 {
        let text = format!("{} bytes follow its last record", records.bytes.remaining);
        return Err(features.faults.invalid(text));
    }
    Ok((table, features.end()))
}

/// Reads the first record.
fn bias(records: &mut Records<'_>, faults: &mut Faults) -> Result<f32, Error> {
    records.read(faults)?;
    if records.name != b"bias" {
        let name = quoted(&records.name);
        return Err(faults.error(format!("its name is {name} instead of \"bias\"")));
    }
    let mut values = Vec::new();
    records.values(1, &mut values).map_err(|fault| faults.error(fault))?;
    Ok(values[0])
}
