//! The cells of a table.

use outrigger_oip::{DataType, Malformed, Tensor};
use outrigger_proto::outrigger::v1::value::Kind;
use outrigger_tables::{Cell, half};

use crate::value::{Takes, list, value};

/// The cells of an input, row by row.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    pub(crate) datatype: DataType,
    /// The values of each row; `None` for one value without a dimension of its own.
    pub(crate) width: Option<usize>,
    pub(crate) data: &'a [u8],
    texts: Vec<&'a [u8]>,
}

/// The bytes of the values of one row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Content<'a> {
    /// Elements of a fixed size, little-endian.
    Bytes(&'a [u8]),
    /// Texts, or other bytes.
    Texts(&'a [&'a [u8]]),
}

impl<'a> Cells<'a> {
    /// Reads a tensor `[rows]` or `[rows, width]`.
    pub(crate) fn read(tensor: &'a Tensor) -> Result<(usize, Self), Malformed> {
        let size = |size: i64| usize::try_from(size).unwrap_or_default();
        let (rows, width) = match tensor.shape[..] {
            [rows] => (size(rows), None),
            [rows, width] => (size(rows), Some(size(width))),
            _ => {
                let shape = &tensor.shape;
                let message = format!("a feature is [rows] or [rows, width], not {shape:?}");
                return Err(Malformed::at("shape", message));
            }
        };
        let texts = match tensor.datatype {
            DataType::Bytes => tensor.texts().collect(),
            _ => Vec::new(),
        };
        Ok((rows, Self { datatype: tensor.datatype, width, data: &tensor.data, texts }))
    }

    /// The bytes of the values of a row.
    pub(crate) fn content(&self, row: usize) -> Content<'_> {
        let width = self.width.unwrap_or(1);
        match self.datatype.size() {
            None => Content::Texts(&self.texts[row * width..][..width]),
            Some(size) => Content::Bytes(&self.data[row * width * size..][..width * size]),
        }
    }

    /// The value of a row for a feature: one without a dimension of its own or of width 1 is no list.
    /// `None` if NaN stands for none.
    ///
    /// # Errors
    /// A text is not UTF-8.
    pub(crate) fn value(&self, row: usize, takes: Takes) -> Result<Option<Kind>, Malformed> {
        let found = match self.content(row) {
            Content::Texts(texts) if texts.iter().any(|it| str::from_utf8(it).is_err()) => {
                Err("a text is not valid UTF-8".to_owned())
            }
            Content::Texts(texts) => {
                let text = |text: &&[u8]| Cell::Text(String::from_utf8_lossy(text).into_owned());
                self.value_of(texts.iter().map(text), takes)
            }
            Content::Bytes(bytes) => {
                let elements = bytes.chunks_exact(self.datatype.least_size());
                self.value_of(elements.map(|element| number(element, self.datatype)), takes)
            }
        };
        found.map_err(|message| Malformed::at("data", message))
    }

    fn value_of(
        &self,
        mut cells: impl Iterator<Item = Cell> + Clone,
        takes: Takes,
    ) -> Result<Option<Kind>, String> {
        match self.width {
            None | Some(1) => value(&cells.next().unwrap_or_default(), takes),
            Some(_) => list(cells, takes).map(Some),
        }
    }
}

/// The number or boolean of an element, which is little-endian.
fn number(element: &[u8], datatype: DataType) -> Cell {
    let is_signed =
        matches!(datatype, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64);
    let is_high = element.last().is_some_and(|byte| *byte >= 0x80);
    let mut wide = if is_signed && is_high { [0xff; 8] } else { [0; 8] };
    wide[..element.len()].copy_from_slice(element);
    let bits = u64::from_le_bytes(wide);
    match datatype {
        DataType::Bool => Cell::Flag(bits == 1),
        DataType::Fp16 => Cell::Single(half(bits as u16)),
        // The upper half of a float32.
        DataType::Bf16 => Cell::Single(f32::from_bits((bits as u32) << 16)),
        DataType::Fp32 => Cell::Single(f32::from_bits(bits as u32)),
        DataType::Fp64 => Cell::Real(f64::from_bits(bits)),
        _ if is_signed => Cell::Integer(bits.cast_signed()),
        _ => Cell::of_unsigned(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Type;

    fn values(datatype: DataType, shape: &[i64], data: &[u8]) -> Kind {
        let tensor = Tensor::new("a", datatype, shape.to_vec(), data.to_vec().into());
        let tensor = tensor.expect("consistent");
        let (_, cells) = Cells::read(&tensor).expect("cells");
        cells.value(0, Takes::any(Type::Unknown)).expect("a value").expect("a value")
    }

    #[test]
    fn every_number_is_a_value() {
        use outrigger_proto::outrigger::v1::{IntegerList, NumberList, RealList};
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
        assert_eq!(values(DataType::Int8, &[1], &[0xfe]), Kind::Integer(-2));
        let both = [u64::MAX.to_le_bytes(), 7u64.to_le_bytes()].concat();
        let reals = RealList { values: vec![u64::MAX as f64, 7.0] };
        assert_eq!(values(DataType::Uint64, &[1, 2], &both), Kind::Reals(reals));
    }
}
