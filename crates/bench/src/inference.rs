//! A model of a server of the Open Inference Protocol, called with tensors.

mod samples;

use std::{str::FromStr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Uri, uri::PathAndQuery};
use outrigger_core::Tensor;
use outrigger_oip::{
    DataType, InferRequest, RequestedOutput, grpc,
    metadata::{ModelMetadata, TensorMetadata},
    rest::{self, model_path},
    shape,
};
use outrigger_proto::inference::{ModelMetadataRequest, ModelMetadataResponse};
use prost::Message as _;
use rand::{SeedableRng as _, rngs::StdRng};

use crate::{
    Error,
    client::Client,
    message::Message,
    method::Method,
    outgoing::{Expected, Outgoing},
    requests::{Shape, Tensors},
    server::Server,
};

const METADATA: &str = "/inference.GRPCInferenceService/ModelMetadata";
/// Largest size of an input in bytes.
const MAX_INPUT: usize = 1 << 30;

/// A model of a server of the Open Inference Protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inference {
    /// The model's name.
    pub model: String,
    /// The version; `None` means the one that the server chooses.
    pub version: Option<String>,
    /// The form of the messages.
    pub form: InferenceForm,
    /// The inputs of requests that are generated without a metadata.json. If empty, they are those
    /// that the server describes.
    pub inputs: Vec<Input>,
}

/// The form of messages of the Open Inference Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InferenceForm {
    /// gRPC, with raw contents.
    Grpc,
    /// HTTP, with binary tensors in both directions.
    Binary,
    /// HTTP, with all tensors as JSON.
    Json,
}

/// An input of a model, with the sizes to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    name: Arc<str>,
    datatype: DataType,
    /// Sizes, outermost first; none for a scalar.
    shape: Vec<i64>,
}

impl InferenceForm {
    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "oip-grpc",
            Self::Binary => "oip-binary",
            Self::Json => "oip-json",
        }
    }
}

impl Input {
    /// Creates an input.
    fn new(name: &str, datatype: DataType, shape: Vec<i64>) -> Result<Self, String> {
        let bytes = shape::bytes(&shape, datatype).map_err(|fault| fault.to_string())?;
        if bytes > MAX_INPUT {
            return Err(format!("{bytes} bytes, at most {MAX_INPUT} are sent"));
        }
        Ok(Self { name: name.into(), datatype, shape })
    }

    /// The input that a server describes. Its first size is the number of rows where it is variable.
    fn described(input: &TensorMetadata, rows: usize) -> Result<Self, Error> {
        let TensorMetadata { name, datatype, shape } = input;
        let invalid = |problem: String| Error::Request(format!("input {name:?}: {problem}"));
        let datatype = DataType::read(datatype).map_err(|fault| invalid(fault.to_string()))?;
        let mut sizes = shape.clone();
        if let Some(first) = sizes.first_mut().filter(|first| **first < 0) {
            *first = i64::try_from(rows).unwrap_or(i64::MAX);
        }
        if sizes.iter().any(|size| *size < 0) {
            let problem = format!("its shape {shape:?} has a variable size, which must be given");
            return Err(invalid(problem));
        }
        Self::new(name, datatype, sizes).map_err(invalid)
    }
}

/// Reads `NAME:DATATYPE:SIZE,SIZE`.
impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.rsplitn(3, ':');
        let (Some(sizes), Some(datatype), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err("is written NAME:DATATYPE:SIZE,SIZE".to_owned());
        };
        let datatype = DataType::read(datatype).map_err(|fault| fault.to_string())?;
        let sizes = sizes.split(',').filter(|sizes| !sizes.is_empty());
        let sizes: Result<_, _> = sizes.map(str::parse).collect();
        Self::new(name, datatype, sizes.map_err(|_| "a size is a number".to_owned())?)
    }
}

impl Inference {
    /// The method that runs the model.
    pub(crate) fn method(&self) -> Method {
        match self.form {
            InferenceForm::Grpc => Method::Infer,
            InferenceForm::Binary | InferenceForm::Json => {
                Method::InferHttp(self.path("/infer"), self.form)
            }
        }
    }

    /// The path of the model over HTTP, with a suffix.
    fn path(&self, suffix: &str) -> Uri {
        let path = model_path(&self.model, self.version.as_deref()) + suffix;
        PathAndQuery::try_from(path).expect("names are escaped").into()
    }

    /// Requests with random tensors for the inputs that were given, or that the server describes.
    ///
    /// # Errors
    /// The server does not describe the inputs, or does not answer.
    pub(crate) async fn generate(
        &self,
        given: &Shape,
        (client, server): (&Client, &Server),
        timeout: Duration,
    ) -> Result<Vec<Tensors>, Error> {
        let inputs = match &self.inputs[..] {
            [] => self.described(given.treatments, (client, server), timeout).await?,
            inputs => inputs.to_vec(),
        };
        let mut random = StdRng::seed_from_u64(given.seed);
        let mut request = |_| {
            let inputs = inputs.iter().map(|input| samples::tensor(input, &mut random)).collect();
            Tensors { inputs, outputs: Vec::new() }
        };
        Ok((0..given.distinct).map(&mut request).collect())
    }

    async fn described(
        &self,
        rows: usize,
        (client, server): (&Client, &Server),
        timeout: Duration,
    ) -> Result<Vec<Input>, Error> {
        let inputs = match self.form {
            InferenceForm::Grpc => self.metadata(client, server, timeout).await?,
            InferenceForm::Binary | InferenceForm::Json => {
                let message = Message::get(server, timeout, self.path(""));
                let answer = client.call(0, &message, timeout).await.map_err(Error::Refused)?;
                let metadata: ModelMetadata = serde_json::from_slice(&answer.body)
                    .map_err(|error| Error::Request(format!("the model's metadata: {error}")))?;
                metadata.inputs
            }
        };
        if inputs.is_empty() {
            let model = &self.model;
            let error = format!("{server} does not describe the inputs of {model}: give them");
            return Err(Error::Request(error));
        }
        inputs.iter().map(|input| Input::described(input, rows)).collect()
    }

    /// The inputs that the server describes over gRPC.
    async fn metadata(
        &self,
        client: &Client,
        server: &Server,
        timeout: Duration,
    ) -> Result<Vec<TensorMetadata>, Error> {
        let (name, version) = (self.model.clone(), self.version.clone().unwrap_or_default());
        let question = ModelMetadataRequest { name, version };
        let message = Message::grpc(server, METADATA, timeout, &question.encode_to_vec());
        let answer = client.call(0, &message, timeout).await.map_err(Error::Refused)?;
        let answer = ModelMetadataResponse::decode(answer.body)
            .map_err(|error| Error::Request(format!("ModelMetadata: {error}")))?;
        let inputs = answer.inputs.into_iter().map(|input| TensorMetadata {
            name: input.name,
            datatype: input.datatype,
            shape: input.shape,
        });
        Ok(inputs.collect())
    }

    /// Encodes the request with the index `at`. It has an id, since one server fails without.
    ///
    /// # Errors
    /// A tensor has no form in JSON.
    pub(crate) fn encode(&self, at: usize, tensors: Tensors) -> Result<Outgoing, Error> {
        let Tensors { inputs, outputs } = tensors;
        let names: Vec<Arc<str>> = outputs.into_iter().map(Arc::from).collect();
        let output = |name: &Arc<str>| RequestedOutput { name: Arc::clone(name), binary: None };
        let request = InferRequest {
            id: Some(format!("bench-{at}")),
            inputs: inputs.into_iter().map(outrigger_oip::Tensor::from).collect(),
            outputs: names.iter().map(output).collect(),
            ..InferRequest::default()
        };
        let (body, json) = self.body(request)?;
        Ok(Outgoing { body, json, expected: Expected::Outputs(names) })
    }

    /// The body, and the length of the JSON in front of binary tensors.
    fn body(&self, request: InferRequest) -> Result<(Bytes, Option<usize>), Error> {
        let form = match self.form {
            InferenceForm::Grpc => {
                let version = self.version.clone().unwrap_or_default();
                let message = grpc::write_request(request, self.model.clone(), version);
                return Ok((message.encode_to_vec().into(), None));
            }
            InferenceForm::Binary => rest::Form::Binary,
            InferenceForm::Json => rest::Form::Json,
        };
        let encoded = rest::write_request(&request, form)
            .map_err(|fault| Error::Request(format!("the request has no form in JSON: {fault}")))?;
        let json = encoded.header_length();
        Ok((encoded.into_body(), json))
    }
}

/// The number of rows of a request: the first size of its first input.
pub(crate) fn rows(tensors: &Tensors) -> Option<usize> {
    let Tensor { shape, .. } = tensors.inputs.first()?;
    shape.first().and_then(|rows| usize::try_from(*rows).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Input, String> {
        text.parse()
    }

    #[test]
    fn an_input_has_a_name_a_datatype_and_sizes() {
        let input = |name: &str, datatype, shape: &[i64]| {
            Ok(Input { name: name.into(), datatype, shape: shape.to_vec() })
        };
        assert_eq!(parsed("x:FP32:1000,20"), input("x", DataType::Fp32, &[1000, 20]));
        assert_eq!(parsed("a:b:INT64:"), input("a:b", DataType::Int64, &[]));
        for (text, problem) in [
            ("x", "NAME:DATATYPE:SIZE"),
            ("x:FP32", "NAME:DATATYPE:SIZE"),
            ("x:FP31:1", "FP31"),
            ("x:FP32:1,a", "a size is a number"),
            ("x:FP32:-1", "negative"),
            ("x:FP32:1073741824", "at most 1073741824 are sent"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn only_the_first_size_may_be_variable() {
        let described = |shape: &[i64]| {
            let (name, datatype) = ("x".to_owned(), "FP32".to_owned());
            Input::described(&TensorMetadata { name, datatype, shape: shape.to_vec() }, 7)
        };
        assert_eq!(described(&[-1, 2]).expect("rows").shape, [7, 2]);
        assert_eq!(described(&[3, 2]).expect("fixed").shape, [3, 2]);
        assert!(described(&[]).expect("a scalar").shape.is_empty());
        let error = described(&[-1, -1]).expect_err("two variable sizes").to_string();
        assert!(error.contains("[-1, -1] has a variable size"), "{error}");
    }
}
