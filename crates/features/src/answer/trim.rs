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
        let per_treatment = |output: &&Output| output.kind == OutputKind::PerTreatment;
        for output in self.metadata.outputs.iter().filter(per_treatment) {
            let tensors = outputs.iter_mut().filter(|tensor| tensor.name == output.tensor);
            tensors.for_each(|tensor| trim(tensor, packed.users.len(), packed.treatments));
        }
    }
}

/// Cuts a tensor of the shape [`users`, W] or [`users`, W, 1] to its first `width` columns, if W is
/// larger.
fn trim(tensor: &mut Tensor, users: usize, width: usize) {
    let ([rows, columns] | [rows, columns, 1]) = tensor.shape[..] else { return };
    let (Ok(rows), Ok(columns)) = (usize::try_from(rows), usize::try_from(columns)) else { return };
    let (Some(size), Content::Bytes(bytes)) = (tensor.dtype.size(), &tensor.content) else {
        return;
    };
    let row = columns.checked_mul(size);
    let is_whole = row.and_then(|row| row.checked_mul(rows)) == Some(bytes.len());
    if rows != users || columns <= width || !is_whole {
        return;
    }
    tensor.content = Content::Bytes(first_columns(bytes, columns * size, width * size));
    tensor.shape[1] = i64::try_from(width).expect("it is less than an i64");
}

/// The first `kept` bytes of each row of `row` bytes.
fn first_columns(bytes: &Bytes, row: usize, kept: usize) -> Bytes {
    if bytes.len() == row {
        return bytes.slice(..kept);
    }
    let rows = bytes.chunks_exact(row);
    let mut trimmed = BytesMut::with_capacity(rows.len() * kept);
    rows.for_each(|row| trimmed.extend_from_slice(&row[..kept]));
    trimmed.freeze()
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;

    use super::*;
    use crate::fixtures::{joined, longs, output, pack, plan, request, strings};

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
