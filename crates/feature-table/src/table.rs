//! A table of features, and the requests of its users.

use outrigger_core::{Failure, Reason};
use outrigger_features::{Limits, Metadata, metadata::Entity};
use outrigger_oip::{DataType, Malformed, Tensor, presence_of};
use outrigger_proto::{outrigger::v1::Value, raw::write};

use crate::{
    cells::{Cells, Content},
    value::Takes,
};

/// `PredictRequest.user_features`.
const USER: u32 = 4;
/// `PredictRequest.treatments`.
const TREATMENT: u32 = 6;
/// `FeatureMap.features`.
const OF_USER: u32 = 1;
/// `Treatment.features`.
const OF_TREATMENT: u32 = 2;

/// The columns of a table.
#[derive(Debug)]
pub struct Table<'a> {
    /// The number of rows.
    pub rows: usize,
    columns: Vec<Column<'a>>,
    /// The column by which rows belong to one user.
    key: Option<Cells<'a>>,
}

/// The values of one feature.
#[derive(Debug)]
struct Column<'a> {
    /// The name of the feature.
    name: &'a str,
    /// The name of the input.
    input: &'a str,
    entity: Entity,
    cells: Cells<'a>,
    /// For each row true if it has a value; `None` if all have.
    present: Option<Cells<'a>>,
    takes: Takes,
}

/// The encoded requests of the users.
#[derive(Debug, Default)]
pub struct Requests {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The number of rows of each user.
    pub rows: Vec<usize>,
}

impl Requests {
    /// The messages, in the order of the users.
    pub fn messages(&self) -> Vec<&[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end]).collect()
    }
}

impl<'a> Table<'a> {
    /// Reads the inputs of a request as features of the model. `group_by` names the input with the
    /// users' keys, which may be no feature. An input of [`outrigger_oip::presence`] says in which
    /// rows a feature is absent.
    ///
    /// # Errors
    /// An input is no feature, its shape is not that of rows, or numbers of rows differ.
    pub fn read(
        inputs: &'a [Tensor],
        group_by: Option<&str>,
        metadata: &Metadata,
    ) -> Result<Self, Malformed> {
        let (mut columns, mut present) = (Vec::new(), Vec::new());
        let (mut key, mut first) = (None, None);
        for (index, input) in inputs.iter().enumerate() {
            let within = |fault: Malformed| fault.within(&format!("inputs[{index}]"));
            let (rows, cells) = Cells::read(input).map_err(within)?;
            let (expected, name) = *first.get_or_insert((rows, &*input.name));
            if rows != expected {
                let message = format!("{rows} rows, but {name:?} has {expected}");
                return Err(within(Malformed::at("shape", message)));
            }
            let is_key = group_by == Some(&*input.name);
            match (feature(metadata, &input.name), presence_of(&input.name)) {
                (Ok((entity, name, takes)), _) => {
                    let input = &*input.name;
                    columns.push(Column { name, input, entity, cells, present: None, takes });
                }
                (Err(_), Some(of)) => present.push((of, flags(cells).map_err(within)?)),
                (Err(_), _) if is_key => {}
                (Err(fault), _) => return Err(within(fault)),
            }
            if is_key {
                key = Some(Cells::read(input).map_err(within)?.1);
            }
        }
        for (of, cells) in present {
            let column = columns.iter_mut().find(|column| column.input == of);
            let absent = || Malformed::at("inputs", format!("there is no input {of:?}"));
            column.ok_or_else(absent)?.present = Some(cells);
        }
        match (group_by, first) {
            (_, None) => Err(Malformed::at("inputs", "there are none")),
            (Some(name), _) if key.is_none() => {
                let message = format!("there is no input {name:?}");
                Err(Malformed::at("parameters[\"group_by\"]", message))
            }
            (_, Some((rows, _))) => Ok(Self { rows, columns, key }),
        }
    }

    /// Requires that the table has no more rows than a call may have users.
    ///
    /// # Errors
    /// TOO_MANY_TREATMENTS: it has.
    pub fn check_rows(&self, limits: &Limits) -> Result<(), Failure> {
        let rows = self.rows;
        let most = limits.max_users;
        if rows <= most {
            return Ok(());
        }
        let message = format!("{rows} rows, at most {most} are allowed");
        let failure = Failure::new(Reason::TooManyTreatments, format!("inputs: {message}"));
        Err(failure.violation("inputs", message))
    }

    /// About the size of the encoded requests in bytes.
    pub fn encoded_size(&self) -> usize {
        /// The keys and lengths of an entry, and the most by which a number grows.
        const ENTRY: usize = 24;
        let row = |column: &Column<'_>| {
            let width = column.cells.width.unwrap_or(1);
            column.name.len() + ENTRY + 10 * width
        };
        let texts = |column: &Column<'_>| column.cells.data.len();
        let of_row = self.columns.iter().map(row).sum::<usize>() + ENTRY;
        of_row.saturating_mul(self.rows) + self.columns.iter().map(texts).sum::<usize>()
    }

    /// The requests of the users.
    ///
    /// # Errors
    /// A feature of the user differs between the rows of a user, or a value cannot be one of a
    /// feature.
    pub fn requests(&self) -> Result<Requests, Malformed> {
        let mut requests = Requests::default();
        let mut body = Vec::new();
        let mut start = 0;
        while start < self.rows {
            let end = self.end_of_user(start);
            self.check_user(start, end)?;
            self.put_features(Entity::User, start, &mut body)?;
            write::put_bytes(USER, &body, &mut requests.bytes);
            for row in start..end {
                self.put_features(Entity::Treatment, row, &mut body)?;
                write::put_bytes(TREATMENT, &body, &mut requests.bytes);
            }
            requests.ends.push(requests.bytes.len());
            requests.rows.push(end - start);
            start = end;
        }
        Ok(requests)
    }

    /// The first row after those of the user whose first row is `start`.
    fn end_of_user(&self, start: usize) -> usize {
        let Some(key) = &self.key else { return start + 1 };
        let is_other = |row: &usize| key.content(*row) != key.content(start);
        (start + 1..self.rows).find(is_other).unwrap_or(self.rows)
    }

    /// Requires that the user's features are the same in all rows of a user.
    fn check_user(&self, start: usize, end: usize) -> Result<(), Malformed> {
        for column in self.of(Entity::User) {
            let content = |row| column.is_present(row).then(|| column.cells.content(row));
            let first = content(start);
            if let Some(row) = (start + 1..end).find(|row| content(*row) != first) {
                let message = format!("row {row} differs from row {start} of the same user");
                return Err(Malformed::at(format!("inputs[{:?}]", column.input), message));
            }
        }
        Ok(())
    }

    fn of(&self, entity: Entity) -> impl Iterator<Item = &Column<'a>> {
        self.columns.iter().filter(move |column| column.entity == entity)
    }

    /// Writes the features that a row has to `body`, in the form of a `FeatureMap` or a `Treatment`.
    fn put_features(
        &self,
        entity: Entity,
        row: usize,
        body: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let tag = if entity == Entity::User { OF_USER } else { OF_TREATMENT };
        body.clear();
        for column in self.of(entity).filter(|column| column.is_present(row)) {
            let kind = column.cells.value(row, column.takes);
            let kind =
                kind.map_err(|fault| fault.within(&format!("inputs[{:?}]", column.input)))?;
            if kind.is_some() {
                write::put_entry(tag, column.name, &Value { kind }, body);
            }
        }
        Ok(())
    }
}

impl Column<'_> {
    fn is_present(&self, row: usize) -> bool {
        let is_flagged = |present: &Cells<'_>| present.content(row) == Content::Bytes(&[1]);
        self.present.as_ref().is_none_or(is_flagged)
    }
}

/// The cells of an input with a flag in each row.
fn flags(cells: Cells<'_>) -> Result<Cells<'_>, Malformed> {
    match (cells.datatype, cells.width) {
        (DataType::Bool, None | Some(1)) => Ok(cells),
        (datatype, _) => Err(Malformed::at("datatype", format!("must be one BOOL, is {datatype}"))),
    }
}

/// The feature that an input stands for, and the values that it takes. A name of both entities is
/// qualified by one of them.
fn feature<'a>(metadata: &Metadata, input: &'a str) -> Result<(Entity, &'a str, Takes), Malformed> {
    let find = |entity, name: &'a str| {
        let mut features = metadata.features_of(entity);
        let (of, feature) = features.find(|(_, feature)| *feature.name == *name)?;
        Some((entity, name, Takes::of(feature, of.dtype)))
    };
    match (find(Entity::User, input), find(Entity::Treatment, input)) {
        (Some(found), None) | (None, Some(found)) => return Ok(found),
        (Some(_), Some(_)) => {
            let message = format!("give it as \"user.{input}\" or \"treatment.{input}\"");
            return Err(Malformed::at("name", message));
        }
        (None, None) => {}
    }
    let qualified = [Entity::User, Entity::Treatment]
        .into_iter()
        .find_map(|entity| find(entity, input.strip_prefix(entity.as_str())?.strip_prefix('.')?));
    let unknown = || Malformed::at("name", format!("the model has no feature {input:?}"));
    qualified.ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use outrigger_oip::DataType;
    use outrigger_proto::outrigger::v1::{PredictRequest, predict_request::User, value::Kind};
    use prost::Message as _;

    use super::*;

    fn metadata() -> Metadata {
        let text = r#"{
            "schema": "outrigger.dev/model/v1", "framework": "tensorflow",
            "inputs": [
                {"tensor": "user", "entity": "user", "dtype": "float32",
                 "features": [{"name": "age", "default": 0}, {"name": "x", "default": 0}]},
                {"tensor": "treatment", "entity": "treatment", "dtype": "float32",
                 "features": [{"name": "price", "required": true}, {"name": "x", "default": 0}]}],
            "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}]}"#;
        Metadata::parse(text.as_bytes()).expect("valid")
    }

    fn floats(name: &str, shape: &[i64], values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new(name, DataType::Fp32, shape.to_vec(), data.into()).expect("consistent")
    }

    fn requests(inputs: &[Tensor], group_by: Option<&str>) -> Result<Vec<PredictRequest>, String> {
        let requests = Table::read(inputs, group_by, &metadata())
            .and_then(|table| {
                let requests = table.requests()?;
                assert!(requests.bytes.len() <= table.encoded_size());
                Ok(requests)
            })
            .map_err(|fault| fault.to_string())?;
        let decode = |message: &[u8]| PredictRequest::decode(message).expect("a request");
        Ok(requests.messages().into_iter().map(decode).collect())
    }

    fn number(kind: Option<&outrigger_proto::outrigger::v1::Value>) -> f32 {
        match kind.and_then(|value| value.kind.as_ref()) {
            Some(Kind::Number(number)) => *number,
            other => panic!("{other:?} is no number"),
        }
    }

    fn user(request: &PredictRequest, name: &str) -> f32 {
        let Some(User::UserFeatures(map)) = &request.user else { panic!("no user") };
        number(map.features.get(name))
    }

    #[test]
    fn each_row_is_a_user_with_one_treatment() {
        let inputs = [floats("price", &[2, 1], &[1.0, 2.0]), floats("age", &[2], &[30.0, 40.0])];
        let requests = requests(&inputs, None).expect("readable");
        assert_eq!(requests.len(), 2);
        assert_eq!(user(&requests[1], "age"), 40.0);
        assert_eq!(requests[1].treatments.len(), 1);
    }

    #[test]
    fn consecutive_rows_of_equal_key_are_one_user() {
        let inputs = [
            floats("price", &[4], &[1.0, 2.0, 3.0, 4.0]),
            floats("age", &[4], &[30.0, 30.0, 40.0, 30.0]),
            floats("session", &[4], &[7.0, 7.0, 8.0, 7.0]),
        ];
        let requests = requests(&inputs, Some("session")).expect("readable");
        let counts: Vec<_> = requests.iter().map(|request| request.treatments.len()).collect();
        assert_eq!(counts, [2, 1, 1]);
        assert_eq!(number(requests[0].treatments[1].features.get("price")), 2.0);
    }

    #[test]
    fn a_user_has_the_same_features_in_all_rows() {
        let inputs = [floats("age", &[2], &[30.0, 40.0]), floats("session", &[2], &[7.0, 7.0])];
        assert_eq!(
            requests(&inputs, Some("session")).unwrap_err(),
            "inputs[\"age\"]: row 1 differs from row 0 of the same user"
        );
    }

    #[test]
    fn a_name_of_both_entities_is_qualified() {
        let inputs = [floats("user.x", &[1], &[1.0]), floats("treatment.x", &[1], &[2.0])];
        let found = requests(&inputs, None).expect("readable");
        assert_eq!(user(&found[0], "x"), 1.0);
        assert_eq!(number(found[0].treatments[0].features.get("x")), 2.0);
        let both = requests(&[floats("x", &[1], &[1.0])], None).unwrap_err();
        assert_eq!(both, "inputs[0].name: give it as \"user.x\" or \"treatment.x\"");
    }

    #[test]
    fn a_row_need_not_have_every_feature() {
        let flags = |name: &str, values: &[u8]| {
            let data = values.to_vec().into();
            Tensor::new(name, DataType::Bool, vec![values.len() as i64], data).expect("consistent")
        };
        let price = || floats("price", &[3], &[1.0, 2.0, 3.0]);
        let age = || floats("age", &[3], &[30.0, 0.0, 40.0]);
        let inputs = [price(), flags("present(age)", &[1, 0, 1]), age()];
        let found = requests(&inputs, None).expect("readable");
        let has_age = |request: &PredictRequest| match &request.user {
            Some(User::UserFeatures(map)) => map.features.contains_key("age"),
            _ => panic!("no user"),
        };
        assert_eq!(found.iter().map(has_age).collect::<Vec<_>>(), [true, false, true]);
        assert!(found.iter().all(|request| request.treatments[0].features.len() == 1));
        let absent = requests(&[price(), flags("present(age)", &[1, 0, 1])], None).unwrap_err();
        assert_eq!(absent, "inputs: there is no input \"age\"");
        let numbers = floats("present(age)", &[3], &[1.0, 0.0, 1.0]);
        let refused = requests(&[price(), age(), numbers], None).unwrap_err();
        assert_eq!(refused, "inputs[2].datatype: must be one BOOL, is FP32");
        let other = requests(&[price(), age(), flags("present(x)", &[1, 1, 1])], None).unwrap_err();
        assert!(other.starts_with("inputs"), "{other}");
    }

    #[test]
    fn nan_stands_for_an_absent_value() {
        let inputs = [floats("price", &[2], &[1.0, 2.0]), floats("age", &[2], &[f32::NAN, 40.0])];
        let found = requests(&inputs, None).expect("readable");
        let Some(User::UserFeatures(map)) = &found[0].user else { panic!("no user") };
        assert!(map.features.is_empty());
        assert_eq!(user(&found[1], "age"), 40.0);
    }

    #[test]
    fn tables_that_are_none_are_refused() {
        let price = || floats("price", &[2], &[1.0, 2.0]);
        let cases = [
            (
                vec![floats("cost", &[1], &[1.0])],
                "inputs[0].name: the model has no feature \"cost\"",
            ),
            (
                vec![price(), floats("age", &[1], &[1.0])],
                "inputs[1].shape: 1 rows, but \"price\" has 2",
            ),
            (
                vec![floats("price", &[1, 1, 1], &[1.0])],
                "inputs[0].shape: a feature is [rows] or [rows, width], not [1, 1, 1]",
            ),
            (vec![], "inputs: there are none"),
        ];
        for (inputs, message) in cases {
            assert_eq!(requests(&inputs, None).unwrap_err(), message);
        }
        let absent = requests(&[price()], Some("session")).unwrap_err();
        assert_eq!(absent, "parameters[\"group_by\"]: there is no input \"session\"");
    }
}
