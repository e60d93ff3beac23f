//! The input as a request or a response of the Open Inference Protocol over HTTP. A first byte of
//! flags is followed by the length of the JSON, of two bytes, and the body. Tensors that are read
//! are those that are written and read again, in every form.
#![no_main]

use bytes::Bytes;
use outrigger_core::{DType, Interface, Shape, TensorSpec};
use outrigger_oip::{
    DataType, InferRequest, InferResponse, Tensor,
    message::of_body,
    rest::{
        Form, NonFinite, Resource, find_id, memory, raw_request, read_request, read_response, write_request,
        write_response,
    },
};

/// Flags of the first byte.
const RESPONSE: u8 = 1;
const HEADER: u8 = 2;
const RAW: u8 = 4;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(([flags, low, high], body)) = bytes.split_first_chunk() else { return };
    let (flags, body) = (*flags, Bytes::copy_from_slice(body));
    let json = (flags & HEADER != 0).then(|| u16::from_le_bytes([*low, *high]).into());
    if flags & RAW != 0 {
        if let Ok(request) = raw_request(body, &interface()) {
            check(&request.inputs);
        }
    } else if flags & RESPONSE != 0 {
        of_body(&body);
        if let Ok(response) = read_response(&body, json) {
            response_again(response);
        }
    } else {
        let _ = str::from_utf8(&body).ok().and_then(Resource::parse);
        let id = find_id(&body[..json.unwrap_or(body.len()).min(body.len())]);
        if let Ok(request) = read_request(&body, json) {
            assert!(id.is_none() || id == request.id);
            memory(&body);
            request_again(request);
        }
    }
});

fn interface() -> Interface {
    let input = TensorSpec::new("x", DType::Float32.into(), Shape::of(&[-1, 3]));
    Interface::new(vec![input], Vec::new())
}

fn check(tensors: &[Tensor]) {
    for tensor in tensors {
        tensor.check().expect("a tensor that was read");
    }
}

fn request_again(request: InferRequest) {
    check(&request.inputs);
    for form in [Form::Binary, Form::Json] {
        let Ok(encoded) = write_request(&request, form) else {
            assert!(form == Form::Json && request.inputs.iter().any(has_no_json));
            continue;
        };
        let length = encoded.header_length();
        let again = read_request(&encoded.into_body(), length).expect("a request");
        assert_eq!((again.id, again.inputs), (request.id.clone(), request.inputs.clone()));
    }
}

fn response_again(response: InferResponse) {
    check(&response.outputs);
    for form in [Form::Binary, Form::Json] {
        let Ok(encoded) = write_response(&response, |_| form, NonFinite::Refuse) else {
            assert!(form == Form::Json && response.outputs.iter().any(has_no_json));
            continue;
        };
        let length = encoded.header_length();
        let again = read_response(&encoded.into_body(), length).expect("a response");
        assert_eq!(again.outputs, response.outputs);
    }
}

/// True if the datatype of a tensor may have elements without a form in JSON.
fn has_no_json(tensor: &Tensor) -> bool {
    use DataType::{Bf16, Bytes, Fp16, Fp32, Fp64};
    matches!(tensor.datatype, Bf16 | Bytes | Fp16 | Fp32 | Fp64)
}
