//! The contributions of features to margins, as an engine computes them.

use outrigger_core::{Content, DType, Failure, Reason, Tensor};
use outrigger_proto::outrigger::v1::{ContributingFeature, Contributions};

use crate::{metadata::Feature, packed::Packed, plan::Plan};

impl Plan {
    /// The number of rows of a packed call whose margins are explained: its treatments, or for a
    /// model that scores users its users.
    pub fn rows(&self, packed: &Packed) -> usize {
        match self.joins[..] {
            [] => packed.users.len(),
            _ => packed.users.iter().map(|user| user.kept()).sum(),
        }
    }

    /// Turns the contributions that the engine returned for `rows` rows, a tensor
    /// `[rows, margins, columns + 1]`, into those of the features.
    ///
    /// # Errors
    /// SCORES_INVALID: the tensor has another shape or type, or a value that is not finite.
    pub fn contributions(&self, rows: usize, tensor: &Tensor) -> Result<Contributions, Failure> {
        let mut offset = 0;
        let features: Vec<_> = self.features().map(|it| feature(it, &mut offset)).collect();
        let columns = self.contributed_columns();
        let margins = margins(tensor, [rows, columns]).ok_or_else(|| {
            let Tensor { dtype, shape, .. } = tensor;
            let expected = format!("expected float32 of shape [{rows}, margins, {columns}]");
            invalid(format!("{expected}, the engine returned {dtype} of shape {shape:?}"))
        })?;
        let values = floats(tensor)
            .filter(|values| values.len() == rows * margins as usize * columns)
            .ok_or_else(|| invalid("the engine returned another number of values".to_owned()))?;
        match values.iter().find(|value| !value.is_finite()) {
            Some(value) => Err(invalid(format!("one of the values is {value}"))),
            None => Ok(Contributions { features, margins, values }),
        }
    }

    /// The values of a margin: those of the columns of all inputs, and the base value.
    pub(super) fn contributed_columns(&self) -> usize {
        self.features().map(|feature| feature.length).sum::<usize>() + 1
    }

    /// The features of all inputs.
    pub(super) fn features(&self) -> impl Iterator<Item = &Feature> {
        self.metadata.inputs.iter().flat_map(|input| &input.features)
    }
}

/// The feature whose columns begin at `offset`, which is moved behind them.
fn feature(feature: &Feature, offset: &mut u32) -> ContributingFeature {
    let length = u32::try_from(feature.length).expect("lengths are bounded");
    let before = *offset;
    *offset += length;
    ContributingFeature {
        feature: feature.name.as_ref().to_owned(),
        entity: feature.entity.as_str().to_owned(),
        offset: before,
        length,
    }
}

/// The margins of each row, if the tensor has this many rows and columns.
fn margins(tensor: &Tensor, [rows, columns]: [usize; 2]) -> Option<u32> {
    let [found, margins, width] = tensor.shape[..] else { return None };
    let size = |size: i64| usize::try_from(size).ok();
    let fits = size(found) == Some(rows) && size(width) == Some(columns);
    u32::try_from(margins).ok().filter(|_| fits)
}

fn floats(tensor: &Tensor) -> Option<Vec<f32>> {
    let (DType::Float32, Content::Bytes(bytes)) = (tensor.dtype, &tensor.content) else {
        return None;
    };
    let (elements, rest) = bytes.as_chunks();
    let floats = elements.iter().map(|element| f32::from_le_bytes(*element));
    rest.is_empty().then(|| floats.collect())
}

fn invalid(message: String) -> Failure {
    Failure::new(Reason::ScoresInvalid, format!("contributions: {message}"))
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::{PredictRequest, ResponseOptions};
    use prost::Message as _;

    use super::*;
    use crate::{
        fixtures::{fields, joined, output, plan, request},
        limits::Limits,
        transcode::Request,
    };

    fn contributions(rows: usize, shape: &[i64], values: &[f32]) -> Result<Contributions, Failure> {
        joined().contributions(rows, &output("contributions", shape, values))
    }

    #[test]
    fn features_are_named_with_their_entity_and_columns() {
        let values: Vec<_> = (0..16).map(|at| at as f32).collect();
        let read = contributions(1, &[1, 2, 8], &values).expect("contributions");
        assert_eq!((read.margins, read.values), (2, values));
        let features =
            read.features.iter().map(|it| (&*it.feature, &*it.entity, it.offset, it.length));
        let expected = [
            ("recency_months", "user", 0, 1),
            ("embedding", "user", 1, 2),
            ("discount", "treatment", 3, 1),
            ("visits", "user", 4, 1),
            ("product", "treatment", 5, 1),
            ("channel", "user", 6, 1),
        ];
        assert_eq!(features.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_rows_have_no_contributions() {
        let read = contributions(0, &[0, 1, 8], &[]).expect("contributions");
        assert_eq!((read.margins, read.values.len()), (1, 0));
    }

    #[test]
    fn contributions_of_another_shape_or_that_are_not_finite_are_refused() {
        let integers = Tensor { dtype: DType::Int32, ..output("", &[1, 1, 8], &[0.0; 8]) };
        let mut nan = [0.0; 8];
        nan[3] = f32::NAN;
        let refused = [
            contributions(1, &[1, 8], &[0.0; 8]),
            contributions(2, &[1, 1, 8], &[0.0; 8]),
            contributions(1, &[1, 1, 7], &[0.0; 7]),
            contributions(1, &[1, -1, 8], &[0.0; 8]),
            contributions(1, &[1, 1, 8], &[0.0; 7]),
            contributions(1, &[1, 1, 8], &nan),
            joined().contributions(1, &integers),
        ];
        for result in refused {
            let failure = result.expect_err("refused");
            assert_eq!(failure.reason, Reason::ScoresInvalid);
            assert!(failure.message.starts_with("contributions: "), "{}", failure.message);
        }
    }

    #[test]
    fn only_explain_accepts_the_option() {
        let (plan, limits) = (plan(), Limits::default());
        let options = ResponseOptions { contributions: true, ..ResponseOptions::default() };
        let asked = PredictRequest { options: Some(options.clone()), ..request(&[0.1, 0.2]) };
        let message = asked.encode_to_vec().into();
        let parts = Request::read(&message, &limits).expect("a request");
        assert!(parts.wants_contributions());
        let (explained, packed) = plan.unmetered().explain_request(&parts).expect("packs");
        assert_eq!(explained, plan.explain(&[&message], &limits).expect("packs").remove(0));
        assert_eq!(plan.rows(&packed), 1, "a model without joined inputs");
        let own = request(&[0.1]).encode_to_vec();
        for refused in [
            plan.pack(&[&message], &limits),
            plan.pack_request(&parts),
            plan.pack_batch(&[&own], &options, &limits),
        ] {
            let failure = refused.expect_err("refused");
            assert_eq!(failure.reason, Reason::RequestMalformed);
            assert_eq!(fields(&failure), ["options.contributions"]);
        }
    }
}
