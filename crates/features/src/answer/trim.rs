//! Outputs of an engine that batches requests, trimmed to the treatments of one request.

use bytes::{Bytes, BytesMut};
use outrigger_core::{Content, Tensor};

use crate::{
    metadata::{Output, OutputKind},
    packed::Packed,
    plan::Plan,
};

impl Plan {
    /// Trims the outputs per treatment of an engine that batches requests: in a batch with a longer
    /// request they are as wide as that one. An output that is malformed stays as it is, so that
    /// [`Plan::answer`] refuses it.
    pub fn trim(&self, packed: &Packed, outputs: &mut [Tensor]) {
        if !self.joins.is_empty() {
            // Joined rows are not padded.
            return;
        }
        let Some(sizes) = packed.sizes() else { return };
        let per_treatment = |output: &&Output| output.kind == OutputKind::PerTreatment;
        for output in self.metadata.outputs.iter().filter(per_treatment) {
            let tensors = outputs.iter_mut().filter(|tensor| tensor.name == output.tensor);
            let [users, treatments] = sizes;
            let wanted = [users, treatments, output.width];
            tensors.for_each(|tensor| trim(tensor, wanted));
        }
    }
}

/// Cuts a tensor of the shape [`users`, T, `width`] to its first `treatments` rows for each user,
/// if T is larger. A `width` of 1 may be left out of the shape.
fn trim(tensor: &mut Tensor, [users, treatments, width]: [usize; 3]) {
    let (found, rows, columns) = match tensor.shape[..] {
        [found, rows] => (found, rows, 1),
        [found, rows, columns] => (found, rows, columns),
        _ => return,
    };
    let size = |size: i64| usize::try_from(size).ok();
    let (Some(found), Some(rows), Some(columns)) = (size(found), size(rows), size(columns)) else {
        return;
    };
    let (Some(size), Content::Bytes(bytes)) = (tensor.dtype.size(), &tensor.content) else {
        return;
    };
    let row = size * width;
    let all = rows.checked_mul(row).and_then(|all| all.checked_mul(found));
    if (found, columns) != (users, width) || rows <= treatments || all != Some(bytes.len()) {
        return;
    }
    tensor.content = Content::Bytes(first_rows(bytes, rows * row, treatments * row));
    tensor.shape[1] = i64::try_from(treatments).expect("it is less than an i64");
}

/// The first `kept` bytes of every `all` bytes.
fn first_rows(bytes: &Bytes, all: usize, kept: usize) -> Bytes {
    if bytes.len() == all {
        return bytes.slice(..kept);
    }
    let users = bytes.chunks_exact(all);
    let mut trimmed = BytesMut::with_capacity(users.len() * kept);
    users.for_each(|user| trimmed.extend_from_slice(&user[..kept]));
    trimmed.freeze()
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;

    use super::*;
    use crate::fixtures::{joined, longs, output, pack, plan, request, strings, wide};

    fn trimmed(discounts: &[&[f32]], mut tensor: Tensor) -> Tensor {
        let plan = plan();
        let requests: Vec<_> = discounts.iter().map(|discounts| request(discounts)).collect();
        let packed = pack(&plan, &requests).expect("packs");
        plan.trim(&packed, std::slice::from_mut(&mut tensor));
        tensor
    }

    #[test]
    fn wider_outputs_are_cut_to_the_treatments_of_the_call() {
        let wide = output("scores", &[1, 3], &[1.0, 2.0, f32::NAN]);
        assert_eq!(trimmed(&[&[0.1, 0.2]], wide), output("scores", &[1, 2], &[1.0, 2.0]));
        let wide = output("scores", &[2, 3, 1], &[1.0, 2.0, 9.0, 3.0, 4.0, 9.0]);
        let narrow = output("scores", &[2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(trimmed(&[&[0.1, 0.2], &[0.3]], wide), narrow);
        let longs = |shape: &[i64], values| Tensor {
            dtype: DType::Int64,
            content: longs(values),
            ..output("scores", shape, &[])
        };
        let (wide, narrow) = (longs(&[1, 2], &[1, 2]), longs(&[1, 1], &[1]));
        assert_eq!(trimmed(&[&[0.1]], wide), narrow);
    }

    #[test]
    fn wide_outputs_are_cut_by_whole_rows() {
        let plan = wide();
        let packed = pack(&plan, &[request(&[0.1]), request(&[0.2])]).expect("packs");
        let mut outputs = [
            output("classes", &[2, 2, 2], &[1.0, 2.0, 9.0, 9.0, 3.0, 4.0, 9.0, 9.0]),
            output("classes", &[2, 2, 1], &[1.0; 4]),
            output("classes", &[2, 2], &[1.0; 4]),
        ];
        let malformed = outputs[1..].to_vec();
        plan.trim(&packed, &mut outputs);
        assert_eq!(outputs[0], output("classes", &[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]));
        assert_eq!(outputs[1..], malformed);
    }

    #[test]
    fn anything_else_stays_as_it_is() {
        let strings = Tensor {
            dtype: DType::String,
            content: strings(&["a", "b", "c"]),
            ..output("scores", &[1, 3], &[])
        };
        let tensors = [
            output("scores", &[1, 2], &[1.0; 2]),
            output("scores", &[1, 1], &[1.0]),
            output("scores", &[2, 3], &[1.0; 6]),
            output("scores", &[1, 3], &[1.0; 2]),
            output("scores", &[1, i64::MAX], &[1.0; 2]),
            output("scores", &[1, -3], &[1.0; 3]),
            output("scores", &[3], &[1.0; 3]),
            output("scores", &[1, 3, 2], &[1.0; 6]),
            output("other", &[1, 3], &[1.0; 3]),
            strings,
        ];
        for tensor in tensors {
            assert_eq!(trimmed(&[&[0.1, 0.2]], tensor.clone()), tensor);
        }
    }

    #[test]
    fn joined_rows_and_outputs_per_user_are_not_trimmed() {
        let plan = joined();
        let packed = pack(&plan, &[plan.smoke_request()]).expect("packs");
        let mut outputs = plan.metadata.outputs.iter();
        let name = outputs.next().expect("an output").tensor.clone();
        let wide = Tensor { name, ..output("", &[1, 3], &[1.0; 3]) };
        let mut tensors = [wide.clone()];
        plan.trim(&packed, &mut tensors);
        assert_eq!(tensors, [wide]);
    }
}
