//! The data of a tensor as a flat array of JSON.

use outrigger_json::writer::{array, number, put};
use serde::Serialize;

use super::NonFinite;
use crate::{DataType, Malformed, Tensor};

/// Writes the data of a tensor that was checked. Floats have the fewest digits that read back as
/// the same float.
///
/// # Errors
/// They have no form in JSON.
pub(super) fn write_data(
    tensor: &Tensor,
    non_finite: NonFinite,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let data = &*tensor.data;
    match tensor.datatype {
        DataType::Bool => array(data.iter(), out, |byte, out| put(*byte != 0, out)),
        DataType::Uint8 => numbers(data, u8::from_le_bytes, out),
        DataType::Uint16 => numbers(data, u16::from_le_bytes, out),
        DataType::Uint32 => numbers(data, u32::from_le_bytes, out),
        DataType::Uint64 => numbers(data, u64::from_le_bytes, out),
        DataType::Int8 => numbers(data, i8::from_le_bytes, out),
        DataType::Int16 => numbers(data, i16::from_le_bytes, out),
        DataType::Int32 => numbers(data, i32::from_le_bytes, out),
        DataType::Int64 => numbers(data, i64::from_le_bytes, out),
        DataType::Fp32 => {
            let finite = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes).is_finite();
            floats(data, finite, number, non_finite, out)?;
        }
        DataType::Fp64 => {
            let finite = |bytes: &[u8; 8]| f64::from_le_bytes(*bytes).is_finite();
            let write = |bytes: &[u8; 8], out: &mut Vec<u8>| put(f64::from_le_bytes(*bytes), out);
            floats(data, finite, write, non_finite, out)?;
        }
        DataType::Bytes => texts(tensor, out)?,
        datatype @ (DataType::Fp16 | DataType::Bf16) => {
            let message = format!("{datatype} has no JSON form: ask for a binary tensor");
            return Err(Malformed::at("data", message));
        }
    }
    Ok(())
}

fn numbers<const N: usize, T: Serialize>(
    data: &[u8],
    value: impl Fn([u8; N]) -> T,
    out: &mut Vec<u8>,
) {
    array(data.as_chunks().0.iter(), out, |bytes, out| put(value(*bytes), out));
}

fn floats<const N: usize>(
    data: &[u8],
    is_finite: impl Fn(&[u8; N]) -> bool,
    write: impl Fn(&[u8; N], &mut Vec<u8>),
    non_finite: NonFinite,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let (values, _) = data.as_chunks();
    if non_finite == NonFinite::Refuse
        && let Some(index) = values.iter().position(|value| !is_finite(value))
    {
        let message = format!(
            "element {index} is NaN or infinite, which JSON has no form for: ask for a binary tensor"
        );
        return Err(Malformed::at("data", message));
    }
    array(values.iter(), out, |value, out| match is_finite(value) {
        true => write(value, out),
        false => put((), out),
    });
    Ok(())
}

fn texts(tensor: &Tensor, out: &mut Vec<u8>) -> Result<(), Malformed> {
    if let Some(index) = tensor.texts().position(|text| str::from_utf8(text).is_err()) {
        let message = format!(
            "element {index} is not in UTF-8, which JSON has no form for: ask for a binary tensor"
        );
        return Err(Malformed::at("data", message));
    }
    array(tensor.texts(), out, |text, out| put(str::from_utf8(text).unwrap_or_default(), out));
    Ok(())
}
