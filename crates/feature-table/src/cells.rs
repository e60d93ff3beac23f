//! The cells of a table.

use outrigger_oip::{DataType, Malformed, Tensor};

/// The cells of an input, row by row.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    pub(crate) datatype: DataType,
    /// The values of each row; `None` for one value without a dimension of its own.
    pub(crate) width: Option<usize>,
    pub(crate) data: &'a [u8],
    texts: Vec<&'a [u8]>,
}

/// The values of one row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Cell<'a> {
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

    /// True if the only value of a row is NaN.
    pub(crate) fn is_nan(&self, row: usize) -> bool {
        let Cell::Bytes(bytes) = self.cell(row) else { return false };
        let bits = |bytes: &[u8]| bytes.try_into().map(u16::from_le_bytes).unwrap_or_default();
        match (self.datatype, bytes.len()) {
            (DataType::Fp32, 4) => bytes.try_into().is_ok_and(|it| f32::from_le_bytes(it).is_nan()),
            (DataType::Fp64, 8) => bytes.try_into().is_ok_and(|it| f64::from_le_bytes(it).is_nan()),
            (DataType::Fp16, 2) => bits(bytes) & 0x7fff > 0x7c00,
            (DataType::Bf16, 2) => bits(bytes) & 0x7fff > 0x7f80,
            _ => false,
        }
    }

    /// The values of a row.
    pub(crate) fn cell(&self, row: usize) -> Cell<'_> {
        let width = self.width.unwrap_or(1);
        match self.datatype.size() {
            None => Cell::Texts(&self.texts[row * width..][..width]),
            Some(size) => Cell::Bytes(&self.data[row * width * size..][..width * size]),
        }
    }
}
