//! The contributions of features to margins, as an engine computes them.

use outrigger_core::{Content, DType, Explanation, Failure, Reason, Tensor};
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

    /// Turns the contributions that the engine returned for `rows` rows into those of the features,
    /// or of columns by their ids.
    ///
    /// # Errors
    /// SCORES_INVALID: the values have another shape or type, or one is not finite.
    pub fn contributions(
        &self,
        rows: usize,
        explanation: Explanation,
    ) -> Result<Contributions, Failure> {
        let Explanation { values: tensor, columns } = explanation;
        let mut features = Vec::new();
        if columns.is_none() {
            let mut offset = 0;
            features.extend(self.features().map(|it| feature(it, &mut offset)));
        }
        let contributions =
            Contributions { features, columns: columns.unwrap_or_default(), ..Default::default() };
        let width = width(&contributions);
        let margins = margins(&tensor, [rows, width]).ok_or_else(|| {
            let Tensor { dtype, shape, .. } = &tensor;
            let expected = format!("expected float32 of shape [{rows}, margins, {width}]");
            invalid(format!("{expected}, the engine returned {dtype} of shape {shape:?}"))
        })?;
        let values = floats(&tensor)
            .filter(|values| values.len() == rows * margins as usize * width)
            .ok_or_else(|| invalid("the engine returned another number of values".to_owned()))?;
        match values.iter().find(|value| !value.is_finite()) {
            Some(value) => Err(invalid(format!("one of the values is {value}"))),
            None => Ok(Contributions { margins, values, ..contributions }),
        }
    }

    /// The features of all inputs.
    pub(super) fn features(&self) -> impl Iterator<Item = &Feature> {
        self.metadata.inputs.iter().flat_map(|input| &input.features)
    }
}

/// The values of a margin: those of the columns of all features or ids, and the base value.
pub(super) fn width(contributions: &Contributions) -> usize {
    let of_features = contributions.features.iter().map(|feature| feature.length as usize);
    of_features.sum::<usize>() + contributions.columns.len() + 1
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
        let values = output("contributions", shape, values);
        joined().contributions(rows, Explanation { values, columns: None })
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
    fn columns_by_id_take_the_place_of_features() {
        let explanation = |shape: &[i64], values: &[f32], columns: &[u64]| Explanation {
            values: output("contributions", shape, values),
            columns: Some(columns.to_vec()),
        };
        let values = [0.5, 0.25, 2.0, -0.5, 0.0, 2.0];
        let two = explanation(&[2, 1, 3], &values, &[7, 1 << 29]);
        let read = joined().contributions(2, two).expect("contributions");
        let expected = Contributions {
            features: Vec::new(),
            margins: 1,
            values: values.to_vec(),
            columns: vec![7, 1 << 29],
        };
        assert_eq!(read, expected);
        let none = joined().contributions(2, explanation(&[2, 1, 1], &[2.0; 2], &[]));
        assert_eq!(none.expect("base values").values, [2.0; 2]);
        let other = joined().contributions(2, explanation(&[2, 1, 3], &values, &[7]));
        assert_eq!(other.expect_err("one column").reason, Reason::ScoresInvalid);
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
            joined().contributions(1, Explanation { values: integers, columns: None }),
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
