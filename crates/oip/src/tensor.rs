//! Tensors, the same in all forms of a message.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use outrigger_core::{self as core, Content};

use crate::{DataType, Malformed, shape};

/// A tensor of a request or a response.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The model's name for it.
    pub name: Arc<str>,
    /// The type of its elements.
    pub datatype: DataType,
    /// Sizes, outermost first; none for a scalar.
    pub shape: Vec<i64>,
    /// The elements, row-major and little-endian, without padding. An element of
    /// [`DataType::Bytes`] begins with its length, an unsigned number of four bytes.
    pub data: Bytes,
}

impl Tensor {
    /// Creates a tensor.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn new(
        name: impl Into<Arc<str>>,
        datatype: DataType,
        shape: Vec<i64>,
        data: Bytes,
    ) -> Result<Self, Malformed> {
        let tensor = Self { name: name.into(), datatype, shape, data };
        tensor.check()?;
        Ok(tensor)
    }

    /// Checks that the data are those of the datatype and the shape. Nothing is allocated for what
    /// a shape only claims.
    ///
    /// # Errors
    /// The shape is not valid ([`shape::elements`]); the data have another size; a byte of
    /// [`DataType::Bool`] is neither 0 nor 1; or the lengths of [`DataType::Bytes`] do not match.
    pub fn check(&self) -> Result<(), Malformed> {
        let (datatype, found) = (self.datatype, self.data.len());
        let bytes = shape::bytes(&self.shape, datatype)?;
        match datatype {
            DataType::Bytes => self.check_texts(),
            _ if found != bytes => {
                let shape = &self.shape;
                let message = format!("{found} bytes, but {datatype} {shape:?} has {bytes}");
                Err(Malformed::at("data", message))
            }
            DataType::Bool => match self.data.iter().position(|byte| *byte > 1) {
                None => Ok(()),
                Some(index) => {
                    let message = format!("a BOOL is 0 or 1, not {}", self.data[index]);
                    Err(Malformed::at(format!("data[{index}]"), message))
                }
            },
            _ => Ok(()),
        }
    }

    /// The size of the first dimension; `None` for a scalar.
    pub fn rows(&self) -> Option<usize> {
        self.shape.first().and_then(|rows| usize::try_from(*rows).ok())
    }

    /// Takes the first `count` rows off a tensor that was checked, or all if it has fewer. Nothing
    /// is copied.
    pub fn split_rows(&mut self, count: usize) -> Self {
        let (Some(rows), [_, rest @ ..]) = (self.rows(), self.shape.as_slice()) else {
            return self.clone();
        };
        let count = count.min(rows);
        let elements = count * shape::elements(rest).unwrap_or_default();
        let bytes = match self.datatype.size() {
            Some(size) => elements * size,
            None => self.texts().take(elements).map(|text| 4 + text.len()).sum(),
        };
        let shape = |rows: usize| [&[rows as i64], rest].concat();
        let (head, tail) = (shape(count), shape(rows - count));
        let data = self.data.split_to(bytes);
        self.shape = tail;
        Self { name: Arc::clone(&self.name), datatype: self.datatype, shape: head, data }
    }

    /// The rows of all `parts`, in order; `None` if there are no parts, or if they differ in more
    /// than their rows and data.
    pub fn joined(parts: &[&Self]) -> Option<Self> {
        let (first, others) = parts.split_first()?;
        let [_, row @ ..] = first.shape.as_slice() else { return None };
        let is_alike = |other: &&Self| {
            (&other.name, other.datatype) == (&first.name, first.datatype)
                && other.shape.get(1..) == Some(row)
        };
        if !others.iter().all(is_alike) {
            return None;
        }
        let mut data = BytesMut::with_capacity(parts.iter().map(|part| part.data.len()).sum());
        parts.iter().for_each(|part| data.extend_from_slice(&part.data));
        let rows: usize = parts.iter().filter_map(|part| part.rows()).sum();
        let (name, datatype) = (Arc::clone(&first.name), first.datatype);
        Some(Self { name, datatype, shape: [&[rows as i64], row].concat(), data: data.freeze() })
    }

    /// The elements of a tensor of [`DataType::Bytes`] that was checked.
    pub fn texts(&self) -> Elements<'_> {
        Elements { rest: &self.data }
    }

    fn check_texts(&self) -> Result<(), Malformed> {
        let (elements, mut texts) = (shape::elements(&self.shape)?, self.texts());
        let found = texts.by_ref().count();
        let refused = |message: String| Err(Malformed::at("data", message));
        if !texts.rest.is_empty() {
            let at = self.data.len() - texts.rest.len();
            return refused(format!("the length at byte {at} is that of no element"));
        }
        if found != elements {
            let shape = &self.shape;
            return refused(format!("{found} elements, but BYTES {shape:?} has {elements}"));
        }
        Ok(())
    }

    /// The tensor as engines take it. Elements of [`DataType::Bytes`] share the memory of the data.
    pub fn into_core(self) -> core::Tensor {
        let Self { name, datatype, shape, data } = self;
        let content = match datatype {
            DataType::Bytes => Content::Strings(
                Elements { rest: &data }.map(|text| data.slice_ref(text)).collect(),
            ),
            _ => Content::Bytes(data),
        };
        core::Tensor { name, dtype: datatype.dtype(), shape, content }
    }
}

impl From<core::Tensor> for Tensor {
    fn from(tensor: core::Tensor) -> Self {
        let core::Tensor { name, dtype, shape, content } = tensor;
        let data = match content {
            Content::Bytes(data) => data,
            Content::Strings(texts) => with_lengths(&texts),
        };
        Self { name, datatype: dtype.into(), shape, data }
    }
}

/// The data of a tensor of [`DataType::Bytes`] with these elements. An element is cut at 2^32 - 1
/// bytes, which no message holds.
fn with_lengths(texts: &[Bytes]) -> Bytes {
    let size: usize = texts.iter().map(|text| 4 + text.len()).sum();
    let mut data = BytesMut::with_capacity(size);
    for text in texts {
        put_text(text, &mut data);
    }
    data.freeze()
}

/// Appends an element of [`DataType::Bytes`].
pub(crate) fn put_text(text: &[u8], data: &mut BytesMut) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    data.put_u32_le(length);
    data.extend_from_slice(&text[..length as usize]);
}

/// The elements of a tensor of [`DataType::Bytes`], in order. They end before the first length that
/// is more than the rest.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (text, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;

    use super::*;

    fn checked(datatype: DataType, shape: &[i64], data: &'static [u8]) -> Result<Tensor, String> {
        Tensor::new("x", datatype, shape.to_vec(), Bytes::from_static(data))
            .map_err(|malformed| malformed.to_string())
    }

    #[test]
    fn data_have_the_size_of_their_shape() {
        for datatype in DataType::ALL {
            let Some(size) = datatype.size() else { continue };
            let data = vec![0; 6 * size];
            let tensor =
                |data: &[u8]| Tensor::new("x", datatype, vec![3, 2], Bytes::copy_from_slice(data));
            assert!(tensor(&data).is_ok(), "{datatype}");
            assert!(tensor(&data[1..]).is_err(), "{datatype}");
        }
        assert!(checked(DataType::Fp32, &[0, 5], b"").is_ok());
        let message = "data: 4 bytes, but FP32 [2] has 8".to_owned();
        assert_eq!(checked(DataType::Fp32, &[2], b"1234"), Err(message));
        let message = "shape: the product of the sizes is too large".to_owned();
        assert_eq!(checked(DataType::Fp32, &[1 << 32, 1 << 32], b""), Err(message));
    }

    #[test]
    fn a_bool_is_0_or_1() {
        assert!(checked(DataType::Bool, &[2], &[0, 1]).is_ok());
        let message = "data[1]: a BOOL is 0 or 1, not 2".to_owned();
        assert_eq!(checked(DataType::Bool, &[2], &[1, 2]), Err(message));
    }

    #[test]
    fn texts_are_those_of_their_lengths() {
        let tensor = checked(DataType::Bytes, &[2], b"\x01\0\0\0a\0\0\0\0").expect("valid");
        assert_eq!(tensor.texts().collect::<Vec<_>>(), [&b"a"[..], b""]);
        let cases: [(&[u8], &str); 4] = [
            (b"\x01\0\0\0a", "data: 1 elements, but BYTES [2] has 2"),
            (b"\0\0\0\0\0\0\0\0\0\0\0\0", "data: 3 elements, but BYTES [2] has 2"),
            (b"\0\0\0\0\x02\0\0\0a", "data: the length at byte 4 is that of no element"),
            (b"\0\0\0\0\0\0\0", "data: the length at byte 4 is that of no element"),
        ];
        for (data, message) in cases {
            assert_eq!(checked(DataType::Bytes, &[2], data), Err(message.to_owned()));
        }
    }

    #[test]
    fn rows_are_taken_off_and_joined_again() {
        let floats = checked(DataType::Fp32, &[3, 2], &[7; 24]).expect("valid");
        let texts = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc";
        let texts = checked(DataType::Bytes, &[3], texts).expect("valid");
        for whole in [floats, texts] {
            let mut rest = whole.clone();
            let (first, second) = (rest.split_rows(1), rest.split_rows(2));
            assert_eq!([&first, &second, &rest].map(Tensor::rows), [Some(1), Some(2), Some(0)]);
            for part in [&first, &second, &rest] {
                part.check().expect("as many elements as its shape has");
            }
            assert_eq!(Tensor::joined(&[&first, &second, &rest]), Some(whole.clone()));
            assert_eq!(rest.split_rows(1).rows(), Some(0), "it has no more");
            let other = Tensor { name: "y".into(), ..second };
            assert_eq!(Tensor::joined(&[&first, &other]), None);
        }
        assert_eq!(Tensor::joined(&[]), None);
    }

    #[test]
    fn engines_get_the_same_elements() {
        let tensor = checked(DataType::Bytes, &[2], b"\x01\0\0\0a\0\0\0\0").expect("valid");
        let given = tensor.clone().into_core();
        assert_eq!(given.dtype, DType::String);
        assert_eq!(given.content, Content::Strings(vec!["a".into(), "".into()]));
        assert_eq!(Tensor::from(given), tensor);
        for (datatype, data) in [(DataType::Fp32, &b"1234"[..]), (DataType::Fp16, b"12")] {
            let tensor = checked(datatype, &[1], data).expect("valid");
            assert_eq!(Tensor::from(tensor.clone().into_core()), tensor);
        }
    }
}
