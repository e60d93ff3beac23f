//! Joined tensors, compared element by element with those of a model that has the same
//! features per entity.

use std::sync::Arc;

use outrigger_core::{Content, Tensor};
use outrigger_features::{
    Metadata, Packed, Plan,
    metadata::{Entity, Input},
};

use super::lists;

/// A plan with the same features in one tensor per entity. The features of a joined tensor become
/// neighbours: first the user's, then the treatments'.
pub(crate) fn apart(metadata: &Metadata) -> Plan {
    let parts = metadata.inputs.iter().flat_map(|input| {
        [Entity::User, Entity::Treatment].map(|entity| {
            let features = input.features.iter().filter(|feature| feature.entity == entity);
            let features: Vec<_> = features.cloned().collect();
            let name = |name: &Arc<str>| format!("{name} of the {}", entity.as_str()).into();
            let of_lists = |tensor: &Option<Arc<str>>| {
                tensor.as_ref().filter(|_| !features.is_empty()).map(name)
            };
            Input {
                tensor: name(&input.tensor),
                entity,
                dtype: input.dtype,
                lengths: of_lists(&input.lengths),
                weights: of_lists(&input.weights),
                features,
            }
        })
    });
    Plan::compile(Metadata { inputs: parts.collect(), ..metadata.clone() })
}

/// An id and its weight, as bytes.
type Entry = (Vec<u8>, Vec<u8>);

/// The rows of a sparse input.
fn sparse_rows(input: &Input, packed: &Packed) -> Option<Vec<Vec<Entry>>> {
    let lengths = lists::lengths(input, packed)?;
    let of = |name: &Arc<str>| packed.tensors.iter().find(|tensor| tensor.name == *name);
    let (ids, weights) = (elements(of(&input.tensor)?), elements(of(input.weights.as_ref()?)?));
    assert_eq!((ids.len(), ids.len()), (weights.len(), lengths.iter().sum()));
    let mut entries = ids.into_iter().zip(weights);
    Some(lengths.into_iter().map(|length| entries.by_ref().take(length).collect()).collect())
}

/// Compares the sparse rows of a joined input, which have the ids of the user first.
fn same_sparse(input: &Input, parts: &[Input], joined: &Packed, apart: &Packed) {
    let rows = sparse_rows(input, joined).expect("sparse rows");
    let [users, treatments] = [0, 1].map(|part| sparse_rows(&parts[part], apart));
    let mut rows = rows.into_iter();
    for (user, one) in apart.users.iter().enumerate() {
        for row in user * apart.treatments..user * apart.treatments + one.kept() {
            let of_user = users.as_ref().map_or(&[][..], |rows| &rows[user]);
            let of_row = treatments.as_ref().map_or(&[][..], |rows| &rows[row]);
            assert_eq!(rows.next(), Some([of_user, of_row].concat()), "{}", input.tensor);
        }
    }
    assert_eq!(rows.next(), None, "{}", input.tensor);
}

/// Compares a joined call with the same call packed by the plan of [`apart`].
pub(crate) fn same(metadata: &Metadata, joined: &Packed, apart: &Packed, of_apart: &Metadata) {
    for (index, input) in metadata.inputs.iter().enumerate() {
        if input.weights.is_some() {
            same_sparse(input, &of_apart.inputs[2 * index..2 * index + 2], joined, apart);
            continue;
        }
        let (tensor, parts) = (&joined.tensors[index], &apart.tensors[2 * index..2 * index + 2]);
        let kept: Vec<_> = apart.users.iter().map(|user| user.kept()).collect();
        let rows: usize = kept.iter().sum();
        assert_eq!(tensor.shape, [rows as i64, input.width() as i64]);
        let [users, treatments] = [&parts[0], &parts[1]].map(elements);
        let mut expected = Vec::new();
        for (user, kept) in kept.iter().enumerate() {
            for row in 0..*kept {
                let treatment = user * apart.treatments + row;
                let mut next = [user * width(&parts[0]), treatment * width(&parts[1])];
                for feature in &input.features {
                    let (elements, at) = match feature.entity {
                        Entity::User => (&users, &mut next[0]),
                        _ => (&treatments, &mut next[1]),
                    };
                    expected.extend_from_slice(&elements[*at..*at + feature.length]);
                    *at += feature.length;
                }
            }
        }
        assert_eq!(elements(tensor), expected, "{}", input.tensor);
    }
}

fn width(tensor: &Tensor) -> usize {
    *tensor.shape.last().expect("a row") as usize
}

pub(crate) fn elements(tensor: &Tensor) -> Vec<Vec<u8>> {
    match (&tensor.content, tensor.dtype.size()) {
        (Content::Bytes(bytes), Some(size)) => bytes.chunks(size).map(<[u8]>::to_vec).collect(),
        (Content::Strings(texts), None) => texts.iter().map(|text| text.to_vec()).collect(),
        (content, _) => panic!("{content:?} of another type"),
    }
}
