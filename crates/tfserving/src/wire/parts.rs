//! The parts that all requests of a servable share.

use std::sync::Arc;

use bytes::BufMut;
use outrigger_core::{DType, ServableId};
use outrigger_proto::raw::write::{self, bytes_len, int_len, put_bytes, put_header, put_int};

/// The encoded parts of a `PredictRequest` that depend only on the target: everything except
/// lengths, shapes and elements.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    spec: Vec<u8>,
    /// The encoded keys of the inputs, with their names.
    keys: Vec<(Arc<str>, Vec<u8>)>,
    outputs: Vec<Arc<str>>,
    /// The encoded field that asks for the outputs.
    filter: Vec<u8>,
}

impl Parts {
    /// Encodes the parts of requests that bring `inputs` and ask for `outputs`.
    pub(crate) fn new(
        servable: &ServableId,
        signature: &str,
        inputs: impl IntoIterator<Item = Arc<str>>,
        outputs: impl IntoIterator<Item = Arc<str>>,
    ) -> Self {
        let outputs: Vec<_> = outputs.into_iter().collect();
        let mut filter = Vec::new();
        put_filter(&outputs, &mut filter);
        let key = |name: Arc<str>| {
            let mut key = Vec::new();
            put_key(&name, &mut key);
            (name, key)
        };
        let keys = inputs.into_iter().map(key).collect();
        Self { spec: model_spec(servable, signature), keys, outputs, filter }
    }

    /// The encoded field `model_spec`.
    pub(crate) fn spec(&self) -> &[u8] {
        &self.spec
    }

    /// The encoded key of the input at that position, as [`put_key`] writes it, if the prepared
    /// input has that name.
    pub(crate) fn key(&self, at: usize, name: &str) -> Option<&[u8]> {
        let (known, key) = self.keys.get(at)?;
        (**known == *name).then_some(key)
    }

    /// The encoded output filter, as [`put_filter`] writes it, if `names` are the prepared outputs.
    pub(crate) fn filter(&self, names: &[Arc<str>]) -> Option<&[u8]> {
        (self.outputs == names).then_some(&self.filter)
    }
}

/// Encodes the request's field `model_spec`: name, version (wrapped), signature.
fn model_spec(servable: &ServableId, signature: &str) -> Vec<u8> {
    let (name, version) = (servable.name.as_str(), servable.version.0 as u64);
    let mut spec = Vec::new();
    put_bytes(1, name.as_bytes(), &mut spec);
    put_header(2, int_len(1, version), &mut spec);
    put_int(1, version, &mut spec);
    put_bytes(3, signature.as_bytes(), &mut spec);
    let mut field = Vec::with_capacity(bytes_len(1, spec.len()));
    put_bytes(1, &spec, &mut field);
    field
}

/// Writes the key of an entry of the map `inputs`, and the tag of its value.
pub(super) fn put_key(name: &str, out: &mut impl BufMut) {
    put_bytes(1, name.as_bytes(), out);
    write::put_key(2, out);
}

/// Writes the field `output_filter`, one name after the other.
pub(super) fn put_filter(names: &[Arc<str>], out: &mut impl BufMut) {
    for name in names {
        put_bytes(3, name.as_bytes(), out);
    }
}

/// The first bytes of every `TensorProto` of a type: the type, and the tag of the shape.
pub(super) const fn tensor_start(dtype: DType) -> [u8; 3] {
    [1 << 3, dtype.tensorflow() as u8, 2 << 3 | 2]
}
