//! Concatenated values of several types, each encoded as a `google.protobuf.Value` with a
//! single field: a key of one byte and its content.

use prost::encoding::encode_varint;

use super::Scalar;
use crate::wire::Reader;

const OTHER: u8 = 0x08;
const REAL: u8 = 0x11;
const TEXT: u8 = 0x1a;
const FLAG: u8 = 0x20;

/// Appends a value of an object's list, which has no integers.
pub(crate) fn put_mixed(value: Scalar<'_>, to: &mut Vec<u8>) {
    match value {
        Scalar::Real(real) => {
            to.push(REAL);
            to.extend_from_slice(&real.to_le_bytes());
        }
        Scalar::Text(text) => {
            to.push(TEXT);
            encode_varint(text.len() as u64, to);
            to.extend_from_slice(text);
        }
        Scalar::Flag(flag) => to.extend_from_slice(&[FLAG, flag.into()]),
        Scalar::Integer(_) | Scalar::Id(_) | Scalar::Name(_) | Scalar::Other => {
            to.extend_from_slice(&[OTHER, 0])
        }
    }
}

/// Reads the next value.
pub(super) fn read<'a>(rest: &mut Reader<'a>) -> Option<Scalar<'a>> {
    if rest.accept(REAL) {
        return rest.fixed64().ok().map(|bytes| Scalar::Real(f64::from_le_bytes(bytes)));
    }
    if rest.accept(TEXT) {
        return rest.bytes().ok().map(Scalar::Text);
    }
    let is_flag = rest.accept(FLAG);
    if !is_flag && !rest.accept(OTHER) {
        return None;
    }
    let value = rest.varint().ok()?;
    Some(if is_flag { Scalar::Flag(value != 0) } else { Scalar::Other })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let all = [
            Scalar::Real(-0.5),
            Scalar::Text("ä".as_bytes()),
            Scalar::Flag(true),
            Scalar::Other,
            Scalar::Text(b""),
            Scalar::Flag(false),
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|value| put_mixed(*value, &mut bytes));
        let mut rest = Reader::new(&bytes);
        for value in all {
            assert_eq!(read(&mut rest), Some(value));
        }
        assert_eq!(read(&mut rest), None);
    }
}
