//! The values of features, in the encoding of `outrigger.v1.Value`.

use bytes::BufMut as _;
use outrigger_oip::{DataType, Malformed};
use outrigger_proto::raw::write;

use crate::cells::{Cell, Cells};

/// The key of `Value.number`, which has four bytes.
const NUMBER: u8 = 1 << 3 | 5;
/// The key of `Value.real`, which has eight bytes.
const REAL: u8 = 5 << 3 | 1;
const TEXT: u32 = 2;
const INTEGER: u32 = 3;
const FLAG: u32 = 4;
const NUMBERS: u32 = 6;
const TEXTS: u32 = 7;
const INTEGERS: u32 = 8;
const REALS: u32 = 9;
/// The field of a list with its values.
const VALUES: u32 = 1;

/// Writes the value of a row: one without a dimension of its own or of width 1 as a scalar, others as
/// a list.
///
/// # Errors
/// No feature takes such a value.
pub(crate) fn put_value(cells: &Cells<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let is_list = cells.width.is_some_and(|width| width != 1);
    match (cells.cell(row), cells.datatype) {
        (Cell::Texts([text]), _) if !is_list => write::put_bytes(TEXT, utf8(text)?, out),
        (Cell::Texts(texts), _) => put_texts(texts, out)?,
        (Cell::Bytes(number), DataType::Fp32) if !is_list => {
            out.put_u8(NUMBER);
            out.put_slice(number);
        }
        (Cell::Bytes(real), DataType::Fp64) if !is_list => {
            out.put_u8(REAL);
            out.put_slice(real);
        }
        (Cell::Bytes(numbers), DataType::Fp32) => put_list(NUMBERS, numbers, out),
        (Cell::Bytes(reals), DataType::Fp64) => put_list(REALS, reals, out),
        (Cell::Bytes(flag), DataType::Bool) if !is_list => {
            write::put_int(FLAG, u64::from(flag == [1]), out);
        }
        (Cell::Bytes(bytes), DataType::Fp16 | DataType::Bf16) => {
            let widen = if cells.datatype == DataType::Bf16 { of_bf16 } else { of_fp16 };
            let halves = bytes.chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]]));
            let numbers: Vec<u8> = halves.flat_map(|half| widen(half).to_le_bytes()).collect();
            match is_list {
                true => put_list(NUMBERS, &numbers, out),
                false => {
                    out.put_u8(NUMBER);
                    out.put_slice(&numbers);
                }
            }
        }
        (Cell::Bytes(element), DataType::Uint64) if !is_list && element[7] >= 0x80 => {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(element);
            out.put_u8(REAL);
            out.put_f64_le(u64::from_le_bytes(bytes) as f64);
        }
        (Cell::Bytes(bytes), datatype) if !is_list => {
            write::put_int(INTEGER, integer(bytes, datatype)?, out);
        }
        (Cell::Bytes(bytes), datatype) => put_integers(bytes, datatype, out)?,
    }
    Ok(())
}

/// The number of a bfloat16.
fn of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The number of a float16 (IEEE 754 binary16).
fn of_fp16(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f32::from(bits & 0x3ff);
    sign * match bits >> 10 & 0x1f {
        0 => fraction * 2f32.powi(-24),
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        exponent => (1024.0 + fraction) * 2f32.powi(i32::from(exponent) - 25),
    }
}

fn utf8(text: &[u8]) -> Result<&[u8], Malformed> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(text),
        Err(_) => Err(Malformed::at("data", "a text is not valid UTF-8")),
    }
}

fn put_texts(texts: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let length = texts.iter().map(|text| write::bytes_len(VALUES, text.len())).sum();
    write::put_header(TEXTS, length, out);
    for text in texts {
        write::put_bytes(VALUES, utf8(text)?, out);
    }
    Ok(())
}

/// Writes a packed list of numbers of a fixed size.
fn put_list(tag: u32, values: &[u8], out: &mut Vec<u8>) {
    write::put_header(tag, write::bytes_len(VALUES, values.len()), out);
    write::put_bytes(VALUES, values, out);
}

fn put_integers(bytes: &[u8], datatype: DataType, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let elements = || bytes.chunks_exact(datatype.least_size());
    let values: Vec<u64> =
        elements().map(|element| integer(element, datatype)).collect::<Result<_, _>>()?;
    let length = values.iter().map(|value| write::varint_len(*value)).sum();
    write::put_header(INTEGERS, write::bytes_len(VALUES, length), out);
    write::put_header(VALUES, length, out);
    values.into_iter().for_each(|value| write::put_varint(value, out));
    Ok(())
}

/// An integer of any size as the bits of an int64.
fn integer(element: &[u8], datatype: DataType) -> Result<u64, Malformed> {
    let is_signed =
        matches!(datatype, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64);
    let is_high = element.last().is_some_and(|byte| *byte >= 0x80);
    let mut value = if is_signed && is_high { [0xff; 8] } else { [0; 8] };
    value[..element.len()].copy_from_slice(element);
    let value = u64::from_le_bytes(value);
    if !is_signed && i64::try_from(value).is_err() {
        return Err(Malformed::at("data", format!("{value} does not fit INT64")));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use outrigger_oip::Tensor;
    use outrigger_proto::outrigger::v1::{Value, value::Kind};
    use prost::Message as _;

    use super::*;

    fn values(datatype: DataType, shape: &[i64], data: &[u8]) -> Kind {
        let tensor = Tensor::new("a", datatype, shape.to_vec(), data.to_vec().into());
        let tensor = tensor.expect("consistent");
        let (_, cells) = Cells::read(&tensor).expect("cells");
        let mut value = Vec::new();
        put_value(&cells, 0, &mut value).expect("a value");
        Value::decode(&value[..]).expect("a value").kind.expect("a value")
    }

    #[test]
    fn every_number_is_a_value() {
        use outrigger_proto::outrigger::v1::{IntegerList, NumberList};
        let half = |bits: u16| values(DataType::Fp16, &[1], &bits.to_le_bytes());
        for (bits, number) in [
            (0x4a40, 12.5),
            (0xb800, -0.5),
            (0x0001, 2f32.powi(-24)),
            (0x7bff, 65504.0),
            (0x8000, -0.0),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half(bits), Kind::Number(number), "{bits:x}");
        }
        assert!(matches!(half(0x7e00), Kind::Number(number) if number.is_nan()));
        assert_eq!(values(DataType::Bf16, &[1], &[0x48, 0x41]), Kind::Number(12.5));
        let numbers = Kind::Numbers(NumberList { values: vec![12.5, -0.5] });
        assert_eq!(values(DataType::Fp16, &[1, 2], &[0x40, 0x4a, 0x00, 0xb8]), numbers);
        let flags = Kind::Integers(IntegerList { values: vec![1, 0] });
        assert_eq!(values(DataType::Bool, &[1, 2], &[1, 0]), flags);
        assert_eq!(values(DataType::Bool, &[1], &[1]), Kind::Flag(true));
        let large = u64::MAX.to_le_bytes();
        assert_eq!(values(DataType::Uint64, &[1], &large), Kind::Real(u64::MAX as f64));
        assert_eq!(values(DataType::Uint64, &[1], &7u64.to_le_bytes()), Kind::Integer(7));
    }
}
