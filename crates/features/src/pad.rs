//! Padding of a call's tensors, as by an engine that batches requests.

use bytes::{Bytes, BytesMut};
use outrigger_core::{Content, Tensor};

use crate::{limits::Limits, metadata::Entity, packed::Packed, plan::Plan};

impl Plan {
    /// True if the model has an input with the number of each user's treatments.
    pub fn takes_treatment_count(&self) -> bool {
        self.metadata.inputs.iter().any(|input| input.entity == Entity::TreatmentCount)
    }

    /// True if an input has lists of several elements: the elements of all rows are one tensor, without
    /// a row per user or treatment.
    pub fn has_lists(&self) -> bool {
        let (inputs, joins) = (self.inputs.iter(), self.joins.iter());
        inputs.map(|it| &it.lengths).chain(joins.map(|it| &it.lengths)).any(Option::is_some)
    }

    /// True if the inputs have a row for each treatment.
    pub fn has_joined_rows(&self) -> bool {
        !self.joins.is_empty()
    }

    /// The call as an engine runs it in a batch with a longer one: the tensors of treatments have
    /// twice as many rows per user, or as many as `limits` permit. Further rows have the first
    /// element of the tensor in all places, as TensorFlow Serving pads (`pad_variable_length_inputs`,
    /// batching_util.cc). `None` if no batch changes the call's tensors, or their size allows for no
    /// padding.
    pub fn pad(&self, packed: &Packed, limits: &Limits) -> Option<Packed> {
        let treatments = packed.treatments;
        let padded = limits.max_treatments.min(2 * treatments);
        let has_treatments = self.inputs.iter().any(|input| input.entity == Entity::Treatment);
        // Engines do not batch calls with lists.
        let size: usize = packed.tensors.iter().map(Tensor::size).sum();
        let fits = size <= limits.max_tensor_bytes / 2;
        if self.has_lists()
            || self.has_joined_rows()
            || !has_treatments
            || padded <= treatments
            || !fits
        {
            return None;
        }
        let mut call = packed.clone();
        for (tensor, input) in call.tensors.iter_mut().zip(&self.inputs) {
            if input.entity == Entity::Treatment {
                pad(tensor, padded);
            }
        }
        Some(call)
    }

    /// Gives each user a row of zeros, or of empty texts, in those tensors of treatments that have
    /// no rows. An engine that batches requests refuses a batch in which one tensor has no elements
    /// (batching_util.cc).
    pub fn fill_empty(&self, tensors: &mut [Tensor]) {
        for (tensor, input) in tensors.iter_mut().zip(&self.inputs) {
            if input.entity == Entity::Treatment {
                fill_empty(tensor);
            }
        }
    }
}

/// Gives a tensor [users, 0, width] one row per user, of zeros or empty texts.
fn fill_empty(tensor: &mut Tensor) {
    let [users, 0, width] = tensor.shape[..] else { return };
    let count = usize::try_from(users * width).expect("the sizes of packed tensors are positive");
    tensor.content = match tensor.dtype.size() {
        Some(size) => Content::Bytes(vec![0; count * size].into()),
        None => Content::Strings(vec![Bytes::new(); count]),
    };
    tensor.shape[1] = 1;
}

/// Pads the second dimension of a tensor [users, treatments, width] to `treatments`.
fn pad(tensor: &mut Tensor, treatments: usize) {
    let [_, before, width] = tensor.shape[..] else { return };
    let size = |size: i64| usize::try_from(size).expect("the sizes of packed tensors are positive");
    let (row, more) = (size(before) * size(width), (treatments - size(before)) * size(width));
    match &mut tensor.content {
        Content::Bytes(bytes) => {
            let element = tensor.dtype.size().expect("a type of plain bytes");
            *bytes = pad_bytes(bytes, element, row * element, more);
        }
        Content::Strings(strings) => {
            let padding = vec![strings[0].clone(); more];
            let rows = strings.chunks_exact(row);
            *strings = rows.flat_map(|row| row.iter().chain(&padding)).cloned().collect();
        }
    }
    tensor.shape[1] = i64::try_from(treatments).expect("treatments are limited");
}

/// Appends to each `row` of bytes `more` copies of the first element, of `element` bytes.
fn pad_bytes(bytes: &Bytes, element: usize, row: usize, more: usize) -> Bytes {
    let padding = bytes[..element].repeat(more);
    let rows = bytes.chunks_exact(row);
    let mut padded = BytesMut::with_capacity(bytes.len() + rows.len() * padding.len());
    for row in rows {
        padded.extend_from_slice(row);
        padded.extend_from_slice(&padding);
    }
    padded.freeze()
}

#[cfg(test)]
mod tests {
    use outrigger_core::DType;
    use outrigger_proto::outrigger::v1::PredictRequest;

    use super::*;
    use crate::fixtures::{everything, floats, joined, output, pack, plan, request, strings};

    #[test]
    fn rows_of_treatments_are_padded_with_the_first_element() {
        let mut tensor = output("x", &[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
        super::pad(&mut tensor, 2);
        assert_eq!(tensor.shape, [2, 2, 2]);
        assert_eq!(tensor.content, floats(&[1.0, 2.0, 1.0, 1.0, 3.0, 4.0, 1.0, 1.0]));
        let content = strings(&["a", "b", "c", "d"]);
        let mut tensor = Tensor { dtype: DType::String, content, ..output("x", &[2, 2, 1], &[]) };
        super::pad(&mut tensor, 3);
        assert_eq!(tensor.content, strings(&["a", "b", "a", "c", "d", "a"]));
    }

    #[test]
    fn only_tensors_of_treatments_change() {
        let plan = everything();
        let packed = pack(&plan, &[plan.smoke_request()]).expect("packs");
        let padded = plan.pad(&packed, &Limits::default()).expect("padded");
        assert_eq!((&padded.users, padded.treatments), (&packed.users, packed.treatments));
        let mut seen = 0;
        for (index, input) in plan.inputs.iter().enumerate() {
            let (before, after) = (&packed.tensors[index], &padded.tensors[index]);
            assert_eq!(before != after, input.entity == Entity::Treatment, "{}", before.name);
            seen += usize::from(before != after);
        }
        assert!(seen > 0);
        assert!(plan.takes_treatment_count());
    }

    #[test]
    fn limits_hold_for_padded_calls() {
        let plan = plan();
        let packed = pack(&plan, &[request(&[0.1, 0.2, 0.3])]).expect("packs");
        let rows = |limits| {
            let padded = plan.pad(&packed, &limits)?;
            let tensor = padded.tensors.iter().find(|it| &*it.name == "treatment_numeric")?;
            Some(tensor.shape[1])
        };
        let limits = |max_treatments| Limits { max_treatments, ..Limits::default() };
        assert_eq!([3, 4, 100].map(|most| rows(limits(most))), [None, Some(4), Some(6)]);
        assert_eq!(rows(Limits { max_tensor_bytes: 64, ..limits(100) }), None);
    }

    #[test]
    fn tensors_without_rows_get_one() {
        let plan = everything();
        let request = PredictRequest { treatments: Vec::new(), ..plan.smoke_request() };
        let packed = pack(&plan, &[request]).expect("packs");
        let mut tensors = packed.tensors.clone();
        plan.fill_empty(&mut tensors);
        for (index, input) in plan.inputs.iter().enumerate() {
            let (before, after) = (&packed.tensors[index], &tensors[index]);
            match input.entity {
                Entity::Treatment => {
                    assert_eq!((before.shape[1], after.shape[1]), (0, 1), "{}", before.name);
                    let width = usize::try_from(after.shape[2]).expect("positive");
                    assert_eq!(after.size(), width * after.dtype.size().unwrap_or(0));
                }
                _ => assert_eq!(before, after),
            }
        }
        let full = tensors.clone();
        plan.fill_empty(&mut tensors);
        assert_eq!(tensors, full);
    }

    #[test]
    fn joined_rows_are_not_padded() {
        let plan = joined();
        let packed = pack(&plan, &[plan.smoke_request()]).expect("packs");
        assert_eq!(plan.pad(&packed, &Limits::default()), None);
    }
}
