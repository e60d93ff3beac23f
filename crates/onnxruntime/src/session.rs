//! One loaded model.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use ort::{
    session::{OutputSelector, RunOptions, Session, SessionInputValue},
    value::{DynValue, PrimitiveTensorElementType, Tensor as OrtTensor, TensorElementType},
};
use outrigger_core::{Content, DType, Interface, Tensor};
use outrigger_onnx::{FILE, read};

/// The failure of ONNX Runtime, or of a call that the model cannot take. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The inputs do not fit the model.
    #[error("{0}")]
    Inputs(String),
    /// ONNX Runtime failed.
    #[error("{0}")]
    Runtime(String),
}

impl From<ort::Error> for RunError {
    fn from(error: ort::Error) -> Self {
        match error.code() {
            ort::ErrorCode::InvalidArgument => Self::Inputs(error.to_string()),
            _ => Self::Runtime(error.to_string()),
        }
    }
}

/// A model in memory.
#[derive(Debug)]
pub struct Model {
    /// ONNX Runtime runs one call of a session at a time, on the threads that all sessions share.
    session: Mutex<Session>,
    interface: Interface,
}

impl Model {
    /// Checks the model in `directory` and loads it. Blocks.
    ///
    /// # Errors
    /// The file is refused ([`read`]), or ONNX Runtime cannot load it.
    pub fn load(directory: &Path) -> Result<Self, RunError> {
        let interface = read(directory).map_err(|error| RunError::Inputs(error.to_string()))?;
        let session = Session::builder()?.commit_from_file(directory.join(FILE))?;
        Ok(Self { session: Mutex::new(session), interface })
    }

    /// The inputs and outputs.
    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Runs the model once. Returns the outputs called `wanted`, in that order, or all. Blocks.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&self, inputs: Vec<Tensor>, wanted: &[&str]) -> Result<Vec<Tensor>, RunError> {
        let unknown = inputs.iter().find(|input| self.interface.input(&input.name).is_none());
        if let Some(input) = unknown {
            return Err(RunError::Inputs(format!("the model has no input {}", input.name)));
        }
        let wanted: Vec<_> = match wanted {
            [] => self.interface.outputs.iter().map(|output| &*output.name).collect(),
            wanted => wanted.to_vec(),
        };
        if let Some(name) = wanted.iter().find(|name| self.interface.output(name).is_none()) {
            return Err(RunError::Inputs(format!("the model has no output {name}")));
        }
        let inputs: Vec<(String, SessionInputValue<'_>)> = inputs
            .into_iter()
            .map(|input| Ok((input.name.to_string(), value(input)?)))
            .collect::<Result<_, RunError>>()?;
        let selected = wanted.iter().fold(OutputSelector::no_default(), |it, name| it.with(*name));
        let options = RunOptions::new()?.with_outputs(selected);
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = session.run_with_options(inputs, &options)?;
        let output = |name: &&str| match outputs.get(*name) {
            Some(value) => tensor(name, value),
            None => Err(RunError::Runtime(format!("there is no output {name}"))),
        };
        wanted.iter().map(output).collect()
    }
}

/// A tensor as ONNX Runtime takes it.
fn value(tensor: Tensor) -> Result<SessionInputValue<'static>, RunError> {
    let Tensor { dtype, shape, content, .. } = tensor;
    match content {
        Content::Strings(strings) => {
            let strings = strings.into_iter().map(|text| String::from_utf8(text.into()));
            let strings: Vec<_> = strings
                .collect::<Result<_, _>>()
                .map_err(|error| RunError::Inputs(error.to_string()))?;
            Ok(OrtTensor::from_string_array((shape, &strings[..]))?.into())
        }
        Content::Bytes(bytes) => match dtype {
            DType::Float32 => numbers(shape, &bytes, f32::from_le_bytes),
            DType::Float64 => numbers(shape, &bytes, f64::from_le_bytes),
            DType::Int32 => numbers(shape, &bytes, i32::from_le_bytes),
            DType::Int64 => numbers(shape, &bytes, i64::from_le_bytes),
            DType::Bool => numbers(shape, &bytes, |[byte]| byte != 0),
            DType::String => Err(RunError::Inputs("strings are not plain bytes".to_owned())),
        },
    }
}

fn numbers<T, const SIZE: usize>(
    shape: Vec<i64>,
    bytes: &Bytes,
    of: fn([u8; SIZE]) -> T,
) -> Result<SessionInputValue<'static>, RunError>
where
    T: PrimitiveTensorElementType + std::fmt::Debug + Clone + 'static,
{
    let (chunks, _) = bytes.as_chunks::<SIZE>();
    let numbers: Vec<T> = chunks.iter().copied().map(of).collect();
    Ok(OrtTensor::from_array((shape, numbers))?.into())
}

/// An output of ONNX Runtime.
fn tensor(name: &str, value: &DynValue) -> Result<Tensor, RunError> {
    let Some(found) = value.dtype().tensor_type() else {
        return Err(RunError::Runtime(format!("the output {name} is no tensor")));
    };
    let (dtype, shape, content) = match found {
        TensorElementType::Float32 => plain(value, DType::Float32, |to, it: f32| to.put_f32_le(it)),
        TensorElementType::Float64 => plain(value, DType::Float64, |to, it: f64| to.put_f64_le(it)),
        TensorElementType::Int32 => plain(value, DType::Int32, |to, it: i32| to.put_i32_le(it)),
        TensorElementType::Int64 => plain(value, DType::Int64, |to, it: i64| to.put_i64_le(it)),
        TensorElementType::Bool => plain(value, DType::Bool, |to, it: bool| to.put_u8(it.into())),
        TensorElementType::String => {
            let (shape, strings) = value.try_extract_strings()?;
            let strings = strings.into_iter().map(Bytes::from).collect();
            Ok((DType::String, shape.to_vec(), Content::Strings(strings)))
        }
        other => Err(RunError::Runtime(format!("the output {name} is {other:?}"))),
    }?;
    Ok(Tensor { name: name.into(), dtype, shape, content })
}

fn plain<T: PrimitiveTensorElementType + Copy>(
    value: &DynValue,
    dtype: DType,
    put: fn(&mut BytesMut, T),
) -> Result<(DType, Vec<i64>, Content), RunError> {
    let (shape, elements) = value.try_extract_tensor::<T>()?;
    let mut bytes = BytesMut::with_capacity(size_of_val(elements));
    elements.iter().for_each(|element| put(&mut bytes, *element));
    Ok((dtype, shape.to_vec(), Content::Bytes(bytes.freeze())))
}
