//! Tensors for tests.

use std::{fs, path::Path};

use outrigger_core::{Content, DType, Tensor};
use outrigger_run::local::tensor;

/// A fixture of the crate `fm`, whose scores another implementation computed.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fm/tests/fixtures");
    fs::read(root.join(name)).expect("a fixture")
}

/// A sparse row.
pub(crate) type Entries = Vec<(u64, f32)>;

/// The tensors of an input of sparse rows.
pub(crate) fn sparse(name: &str, rows: &[Entries]) -> [Tensor; 3] {
    let (ids, weights): (Vec<_>, Vec<_>) = rows.iter().flatten().copied().unzip();
    let lengths: Vec<_> = rows.iter().map(|row| row.len() as u64).collect();
    let shape = vec![weights.len() as i64];
    [
        int64(name, &ids),
        tensor(format!("{name}_weights").into(), shape, &weights),
        int64(&format!("{name}_lengths"), &lengths),
    ]
}

/// An int64 tensor with the bits of these elements.
pub(crate) fn int64(name: &str, elements: &[u64]) -> Tensor {
    let bytes = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    let (shape, content) = (vec![elements.len() as i64], Content::Bytes(bytes));
    Tensor { name: name.into(), dtype: DType::Int64, shape, content }
}
