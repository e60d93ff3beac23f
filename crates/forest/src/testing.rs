//! Tensors for tests.

use std::{fs, path::Path};

use outrigger_core::{Content, DType, Tensor};
use outrigger_run::{
    Call,
    local::{Model, tensor},
};

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

/// Asserts that the outputs of a call have the same bits if it is divided into parts of any size.
pub(crate) fn assert_divisible(model: &dyn Model, call: &Call) {
    let whole = model.run(call.clone()).expect("outputs");
    let rows = model.rows(call).expect("rows");
    for of_part in [1, 3, 16, rows.max(1)] {
        let parts = model.divide(call, of_part).expect("parts");
        assert_eq!(parts.len(), rows.div_ceil(of_part));
        let run = |part: Call| model.run(part).expect("outputs of a part");
        let parts: Vec<_> = parts.into_iter().map(run).collect();
        for (at, whole) in whole.iter().enumerate() {
            let parts = || parts.iter().map(|outputs| &outputs[at]);
            assert!(parts().all(|part| part.shape[1..] == whole.shape[1..]), "{whole:?}");
            assert_eq!(parts().map(|part| part.shape[0]).sum::<i64>(), whole.shape[0]);
            let joined: Vec<_> = parts().flat_map(bytes).copied().collect();
            assert!(joined == bytes(whole), "{} in parts of {of_part}", whole.name);
        }
    }
}

fn bytes(tensor: &Tensor) -> &[u8] {
    match &tensor.content {
        Content::Bytes(bytes) => bytes,
        Content::Strings(_) => panic!("{} has strings", tensor.name),
    }
}

/// An int64 tensor with the bits of these elements.
pub(crate) fn int64(name: &str, elements: &[u64]) -> Tensor {
    let bytes = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    let (shape, content) = (vec![elements.len() as i64], Content::Bytes(bytes));
    Tensor { name: name.into(), dtype: DType::Int64, shape, content }
}
