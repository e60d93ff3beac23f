//! Joined tensors, compared element by element with those of a model that has the same
//! features per entity.

use outrigger_core::{Content, Tensor};
use outrigger_features::{
    Metadata, Packed, Plan,
    metadata::{Entity, Input},
};

/// A plan with the same features in one tensor per entity. The features of a joined tensor become
/// neighbours: first the user's, then the treatments'.
pub(crate) fn apart(metadata: &Metadata) -> Plan {
    let parts = metadata.inputs.iter().flat_map(|input| {
        [Entity::User, Entity::Treatment].map(|entity| {
            let features = input.features.iter().filter(|feature| feature.entity == entity);
            let features = features.cloned().collect();
            let tensor = format!("{} of the {}", input.tensor, entity.as_str());
            Input {
                tensor: tensor.into(),
                entity,
                dtype: input.dtype,
                lengths: None,
                weights: None,
                features,
            }
        })
    });
    Plan::compile(Metadata { inputs: parts.collect(), ..metadata.clone() })
}

/// Compares a joined call with the same call packed by the plan of [`apart`].
pub(crate) fn same(metadata: &Metadata, joined: &Packed, apart: &Packed) {
    for (index, input) in metadata.inputs.iter().enumerate() {
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
