//! Random tensors.

use bytes::{BufMut as _, Bytes, BytesMut};
use outrigger_core::{Content, Tensor};
use outrigger_oip::DataType;
use rand::{RngExt as _, rngs::StdRng};

use super::Input;

/// A tensor for an input: floats from -1 to 1 (FP16 from 1 to 2), integers from 0 to 99, and short
/// texts.
pub(super) fn tensor(input: &Input, random: &mut StdRng) -> Tensor {
    let Input { name, datatype, shape } = input;
    let count = outrigger_oip::shape::elements(shape).expect("checked");
    let content = match datatype {
        DataType::Bytes => Content::Strings((0..count).map(|_| text(random)).collect()),
        _ => {
            let mut data = BytesMut::with_capacity(count * datatype.least_size());
            (0..count).for_each(|_| put(*datatype, random, &mut data));
            Content::Bytes(data.freeze())
        }
    };
    Tensor { name: name.clone(), dtype: datatype.dtype(), shape: shape.clone(), content }
}

fn text(random: &mut StdRng) -> Bytes {
    format!("v{}", random.random_range(0..1000)).into()
}

/// Appends an element of a fixed size.
fn put(datatype: DataType, random: &mut StdRng, data: &mut BytesMut) {
    let mut small = || random.random_range(0..100u8);
    match datatype {
        DataType::Bool => data.put_u8(small() & 1),
        DataType::Uint8 | DataType::Int8 => data.put_u8(small()),
        DataType::Uint16 | DataType::Int16 => data.put_u16_le(small().into()),
        DataType::Uint32 | DataType::Int32 => data.put_u32_le(small().into()),
        DataType::Uint64 | DataType::Int64 => data.put_u64_le(small().into()),
        // Exponent 0; the last bits are those of the fraction.
        DataType::Fp16 => data.put_u16_le(0x3c00 | random.random_range(0..1 << 10)),
        // The upper half of an FP32.
        DataType::Bf16 => data.put_u16_le((float(random).to_bits() >> 16) as u16),
        DataType::Fp32 => data.put_f32_le(float(random)),
        DataType::Fp64 => data.put_f64_le(random.random_range(-1.0..1.0)),
        DataType::Bytes => {}
    }
}

fn float(random: &mut StdRng) -> f32 {
    random.random_range(-1.0..1.0)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn every_datatype_has_valid_tensors_that_the_seed_decides() {
        for datatype in DataType::ALL {
            let input = Input { name: "x".into(), datatype, shape: vec![50, 2] };
            let made = |seed| {
                let tensor = tensor(&input, &mut StdRng::seed_from_u64(seed));
                outrigger_oip::Tensor::from(tensor)
            };
            let first = made(1);
            first.check().unwrap_or_else(|fault| panic!("{datatype}: {fault}"));
            assert_eq!(first.datatype, datatype);
            assert_eq!(made(1), first, "{datatype}");
            assert_ne!(made(2), first, "{datatype}");
        }
    }
}
