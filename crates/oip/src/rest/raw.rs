//! Requests whose body is the data of the model's only input.

use bytes::{Bytes, BytesMut};
use outrigger_core::{ElementType, Interface, Shape};

use crate::{DataType, InferRequest, Malformed, Tensor, shape, tensor::put_text};

/// The request with this body for a model with this interface, if the model has one input and the
/// size of the body decides its shape: at most one size of the input is variable. A body for [`DataType::Bytes`] is one element, without its
/// length. The outputs are binary tensors then ([`Forms::of_raw`](super::Forms::of_raw)).
///
/// # Errors
/// The model has several inputs or an input of another shape, or the body does not fit.
pub fn raw_request(body: Bytes, interface: &Interface) -> Result<InferRequest, Malformed> {
    let input = match interface.inputs.as_slice() {
        [input] => input,
        inputs => {
            let message = format!(
                "{}: 0 stands for the data of the only input, but the model has {}",
                super::HEADER_LENGTH,
                inputs.len()
            );
            return Err(Malformed::new(message));
        }
    };
    let refused = |message: &str| Malformed::at("inputs[0]", format!("{:?} {message}", input.name));
    let (ElementType::Known(dtype), Shape::Sizes(sizes)) = (&input.dtype, &input.shape) else {
        return Err(refused("has a type or a shape that the body does not decide"));
    };
    let datatype = DataType::from(*dtype);
    let shape = sizes_of(sizes, datatype, body.len()).ok_or_else(|| {
        refused(&format!("is {datatype} {}, which the body does not fit", input.shape))
    })?;
    let data = match datatype {
        DataType::Bytes => {
            let mut data = BytesMut::with_capacity(body.len() + 4);
            put_text(&body, &mut data);
            data.freeze()
        }
        _ => body,
    };
    let input = Tensor::new(input.name.clone(), datatype, shape, data)?;
    Ok(InferRequest { inputs: vec![input], ..InferRequest::default() })
}

/// The shape that a body of `length` bytes has; `None` if it has none.
fn sizes_of(sizes: &[Option<u64>], datatype: DataType, length: usize) -> Option<Vec<i64>> {
    let fixed = sizes.iter().map(|size| i64::try_from(size.unwrap_or(1)).ok());
    let mut shape: Vec<_> = fixed.collect::<Option<_>>()?;
    let mut variable = sizes.iter().enumerate().filter(|(_, size)| size.is_none());
    let (first, second) = (variable.next(), variable.next());
    if second.is_some() {
        return None;
    }
    if datatype.size().is_none() {
        return (shape::elements(&shape) == Ok(1)).then_some(shape);
    }
    if let Some((index, _)) = first {
        let row = shape::bytes(&shape, datatype).ok().filter(|row| *row > 0)?;
        shape[index] = i64::try_from(length / row).ok()?;
    }
    (shape::bytes(&shape, datatype) == Ok(length)).then_some(shape)
}

#[cfg(test)]
mod tests {
    use outrigger_core::{DType, TensorSpec};

    use super::*;

    fn interface(dtype: DType, sizes: &[i64]) -> Interface {
        Interface::new(vec![TensorSpec::new("x", dtype.into(), Shape::of(sizes))], Vec::new())
    }

    fn read(dtype: DType, sizes: &[i64], body: &'static [u8]) -> Result<Vec<i64>, String> {
        let request = raw_request(Bytes::from_static(body), &interface(dtype, sizes));
        let request = request.map_err(|malformed| malformed.to_string())?;
        Ok(request.inputs[0].shape.clone())
    }

    #[test]
    fn the_size_of_the_body_decides_the_shape() {
        assert_eq!(read(DType::Float32, &[-1, 2], &[0; 24]), Ok(vec![3, 2]));
        assert_eq!(read(DType::Float32, &[-1, 2], b""), Ok(vec![0, 2]));
        assert_eq!(read(DType::Float32, &[2, 3], &[0; 24]), Ok(vec![2, 3]));
        assert_eq!(read(DType::Float32, &[], &[0; 4]), Ok(vec![]));
    }

    #[test]
    fn a_text_is_the_whole_body() {
        let body = Bytes::from_static(b"\xff\xd8");
        let request = raw_request(body, &interface(DType::String, &[-1])).expect("one text");
        assert_eq!(request.inputs[0].texts().collect::<Vec<_>>(), [b"\xff\xd8"]);
        assert_eq!(read(DType::String, &[-1, 1], b"a"), Ok(vec![1, 1]));
    }

    #[test]
    fn other_bodies_and_models_are_refused() {
        let misfit = "inputs[0]: \"x\" is FP32 [?, 2], which the body does not fit".to_owned();
        assert_eq!(read(DType::Float32, &[-1, 2], &[0; 9]), Err(misfit.clone()));
        assert_eq!(read(DType::Float32, &[-1, 2], &[0; 12]), Err(misfit));
        for (dtype, sizes, body) in [
            (DType::Float32, &[-1, -1][..], &[0; 4][..]),
            (DType::String, &[-1, -1], b"a"),
            (DType::Float32, &[2, 2], &[0; 4]),
            (DType::Float32, &[-1, 0], &[0; 4]),
            (DType::String, &[2], b"a"),
        ] {
            assert!(read(dtype, sizes, Vec::leak(body.to_vec())).is_err(), "{sizes:?}");
        }
        let spec = |name: &str| TensorSpec::new(name, DType::Bool.into(), Shape::of(&[-1]));
        let two = Interface::new(vec![spec("a"), spec("b")], Vec::new());
        let refused = raw_request(Bytes::new(), &two).unwrap_err().to_string();
        let message = "inference-header-content-length: 0 stands for the data of the only input, \
                       but the model has 2";
        assert_eq!(refused, message);
        let any = TensorSpec::new("x", DType::Bool.into(), Shape::Any);
        assert!(raw_request(Bytes::new(), &Interface::new(vec![any], Vec::new())).is_err());
    }
}
