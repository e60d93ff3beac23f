//! The typed contents of a tensor, to and from its bytes.

use bytes::{Bytes, BytesMut};
use outrigger_proto::inference::InferTensorContents;

use crate::{DataType, Malformed, Tensor, shape, tensor::put_text};

/// The fields of contents, by the datatypes that they are for.
const FIELDS: [(&str, &[DataType]); 8] = [
    ("bool_contents", &[DataType::Bool]),
    ("int_contents", &[DataType::Int8, DataType::Int16, DataType::Int32]),
    ("int64_contents", &[DataType::Int64]),
    ("uint_contents", &[DataType::Uint8, DataType::Uint16, DataType::Uint32]),
    ("uint64_contents", &[DataType::Uint64]),
    ("fp32_contents", &[DataType::Fp32]),
    ("fp64_contents", &[DataType::Fp64]),
    ("bytes_contents", &[DataType::Bytes]),
];

/// The numbers of elements in each field, in the order of [`FIELDS`].
fn counts(contents: &InferTensorContents) -> [usize; FIELDS.len()] {
    [
        contents.bool_contents.len(),
        contents.int_contents.len(),
        contents.int64_contents.len(),
        contents.uint_contents.len(),
        contents.uint64_contents.len(),
        contents.fp32_contents.len(),
        contents.fp64_contents.len(),
        contents.bytes_contents.len(),
    ]
}

/// True if no field has elements.
pub(super) fn are_empty(contents: &InferTensorContents) -> bool {
    counts(contents) == [0; FIELDS.len()]
}

/// The data of a tensor with these contents.
///
/// # Errors
/// The datatype has no contents, another field than that of the datatype has elements, there are
/// more or fewer elements than the shape has, or an element is not in the range of the datatype.
pub(super) fn data(
    contents: InferTensorContents,
    datatype: DataType,
    shape: &[i64],
) -> Result<Bytes, Malformed> {
    let refused = |message: String| Err(Malformed::at("contents", message));
    let Some(field) = FIELDS.iter().position(|(_, datatypes)| datatypes.contains(&datatype)) else {
        return refused(format!("{datatype} has no contents: send it in raw_input_contents"));
    };
    let counts = counts(&contents);
    let others = counts.iter().enumerate().find(|(index, count)| *index != field && **count > 0);
    if let Some((other, _)) = others {
        let (given, right) = (FIELDS[other].0, FIELDS[field].0);
        return refused(format!("{given} is set, but {datatype} is sent in {right}"));
    }
    let (found, elements) = (counts[field], shape::elements(shape)?);
    if found != elements {
        return refused(format!("{found} elements, but {datatype} {shape:?} has {elements}"));
    }
    match bytes(contents, datatype) {
        Ok(data) => Ok(data),
        Err(index) => refused(format!("element {index} is not in the range of {datatype}")),
    }
}

/// The bytes of the elements; an error is the index of one that is out of range.
fn bytes(contents: InferTensorContents, datatype: DataType) -> Result<Bytes, usize> {
    let InferTensorContents { int_contents: signed, uint_contents: unsigned, .. } = &contents;
    let bytes = match datatype {
        DataType::Bool => contents.bool_contents.into_iter().map(u8::from).collect(),
        DataType::Int8 => narrowed(signed, i8::to_le_bytes)?,
        DataType::Int16 => narrowed(signed, i16::to_le_bytes)?,
        DataType::Int32 => narrowed(signed, i32::to_le_bytes)?,
        DataType::Uint8 => narrowed(unsigned, u8::to_le_bytes)?,
        DataType::Uint16 => narrowed(unsigned, u16::to_le_bytes)?,
        DataType::Uint32 => narrowed(unsigned, u32::to_le_bytes)?,
        DataType::Int64 => narrowed(&contents.int64_contents, i64::to_le_bytes)?,
        DataType::Uint64 => narrowed(&contents.uint64_contents, u64::to_le_bytes)?,
        DataType::Fp32 => narrowed(&contents.fp32_contents, f32::to_le_bytes)?,
        DataType::Fp64 => narrowed(&contents.fp64_contents, f64::to_le_bytes)?,
        DataType::Bytes => return Ok(texts(&contents.bytes_contents)),
        DataType::Fp16 | DataType::Bf16 => Vec::new(),
    };
    Ok(bytes.into())
}

fn narrowed<W: Copy, T: TryFrom<W>, const N: usize>(
    values: &[W],
    bytes: impl Fn(T) -> [u8; N],
) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(values.len() * N);
    for (index, value) in values.iter().enumerate() {
        let value = T::try_from(*value).map_err(|_| index)?;
        out.extend_from_slice(&bytes(value));
    }
    Ok(out)
}

fn texts(texts: &[Bytes]) -> Bytes {
    let size: usize = texts.iter().map(|text| 4 + text.len()).sum();
    let mut out = BytesMut::with_capacity(size);
    for text in texts {
        put_text(text, &mut out);
    }
    out.freeze()
}

/// The contents of a tensor that was checked; `None` if its datatype has none.
pub(super) fn of(tensor: &Tensor) -> Option<InferTensorContents> {
    let (data, mut contents) = (&*tensor.data, InferTensorContents::default());
    match tensor.datatype {
        DataType::Bool => contents.bool_contents = data.iter().map(|byte| *byte != 0).collect(),
        DataType::Int8 => contents.int_contents = widened(data, i8::from_le_bytes),
        DataType::Int16 => contents.int_contents = widened(data, i16::from_le_bytes),
        DataType::Int32 => contents.int_contents = widened(data, i32::from_le_bytes),
        DataType::Uint8 => contents.uint_contents = widened(data, u8::from_le_bytes),
        DataType::Uint16 => contents.uint_contents = widened(data, u16::from_le_bytes),
        DataType::Uint32 => contents.uint_contents = widened(data, u32::from_le_bytes),
        DataType::Int64 => contents.int64_contents = widened(data, i64::from_le_bytes),
        DataType::Uint64 => contents.uint64_contents = widened(data, u64::from_le_bytes),
        DataType::Fp32 => contents.fp32_contents = widened(data, f32::from_le_bytes),
        DataType::Fp64 => contents.fp64_contents = widened(data, f64::from_le_bytes),
        DataType::Bytes => {
            contents.bytes_contents =
                tensor.texts().map(|text| tensor.data.slice_ref(text)).collect();
        }
        DataType::Fp16 | DataType::Bf16 => return None,
    }
    Some(contents)
}

fn widened<T: Into<W>, W, const N: usize>(data: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<W> {
    data.as_chunks().0.iter().map(|bytes| value(*bytes).into()).collect()
}
