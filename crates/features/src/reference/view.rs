//! A request as rows: one optional value for every feature that the model names.

use std::{collections::HashMap, sync::Arc};

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{self, PredictRequest, predict_request::User};

use super::{
    names::Names,
    object,
    plain::{Plain, value_of},
    table,
};
use crate::{
    limits::refuse_too_many,
    place::{Place, given_twice, object_value},
    transcode::Unknown,
};

/// The values of a request for the features that the model names, and the count of all
/// others.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// The user's values, in the order of metadata.json.
    pub(super) user: Vec<Option<Plain<'a>>>,
    /// Number of treatments.
    pub(super) count: usize,
    /// The treatments' values, row by row, each in the order of metadata.json.
    treatments: Vec<Option<Plain<'a>>>,
    /// Values per row.
    width: usize,
    ids: Ids<'a>,
    columnar: bool,
    /// The values of features that the model does not name.
    pub(super) unknown: Unknown,
}

#[derive(Debug)]
enum Ids<'a> {
    OfTreatments(&'a [v1::Treatment]),
    OfTable(&'a [String]),
}

impl<'a> View<'a> {
    /// The number of a request's treatments, in either form.
    ///
    /// # Errors
    /// REQUEST_MALFORMED where the request contradicts itself,
    /// TOO_MANY_TREATMENTS for a table of more than `max_treatments`.
    pub(super) fn count(
        request: &PredictRequest,
        max_treatments: usize,
        names: &Names,
        place: &Place,
    ) -> Result<usize, Failure> {
        let sent = request.treatments.len();
        let Some(columns) = &request.treatment_table else { return Ok(sent) };
        if sent > 0 {
            let message = "treatments and treatment_table exclude each other";
            return Err(place.malformed("treatment_table", message));
        }
        let count = table::count(columns, names.treatment.len(), place)?;
        refuse_too_many(count, max_treatments, "treatment_table", place)?;
        Ok(count)
    }

    /// Sorts a request's values into rows, `count` of them for treatments.
    ///
    /// # Errors
    /// REQUEST_MALFORMED where the request contradicts itself.
    pub(super) fn read(
        request: &'a PredictRequest,
        count: usize,
        names: &Names,
        name_unknown: bool,
        place: &Place,
    ) -> Result<Self, Failure> {
        let mut unknown = Unknown::new(name_unknown);
        let user = read_user(request, names, &mut unknown, place)?;
        let width = names.treatment.len();
        let Some(columns) = &request.treatment_table else {
            let treatments = read_treatments(&request.treatments, names, &mut unknown);
            let ids = Ids::OfTreatments(&request.treatments);
            return Ok(Self { user, count, treatments, width, ids, columnar: false, unknown });
        };
        let treatments = table::read(columns, count, &names.treatment, &mut unknown, place)?;
        let ids = Ids::OfTable(&columns.ids);
        Ok(Self { user, count, treatments, width, ids, columnar: true, unknown })
    }

    /// The values of one treatment.
    pub(super) fn treatment(&self, index: usize) -> &[Option<Plain<'a>>] {
        &self.treatments[index * self.width..(index + 1) * self.width]
    }

    /// The id of one treatment; empty when it has none.
    pub(super) fn id(&self, index: usize) -> &'a str {
        match self.ids {
            Ids::OfTreatments(treatments) => &treatments[index].id,
            Ids::OfTable(ids) => ids.get(index).map_or("", String::as_str),
        }
    }

    /// The path of a treatment's feature in the request.
    pub(super) fn treatment_path(&self, index: usize, feature: &str) -> String {
        if self.columnar {
            format!("treatment_table[{feature:?}][{index}]")
        } else {
            format!("treatments[{index}].features[{feature:?}]")
        }
    }
}

fn read_user<'a>(
    request: &'a PredictRequest,
    names: &Names,
    unknown: &mut Unknown,
    place: &Place,
) -> Result<Vec<Option<Plain<'a>>>, Failure> {
    let mut row = vec![None; names.user.len()];
    match &request.user {
        None => {}
        Some(User::UserFeatures(map)) => read_map(&map.features, &names.user, &mut row, unknown),
        Some(User::UserObject(user)) => {
            let inner = |path: &str| match names.whole.contains(path) {
                true => Err(object_value(path, place)),
                false => Ok(()),
            };
            object::leaves(user, &inner, &mut |path, value| {
                match names.user.get(path) {
                    Some(&slot) if row[slot].is_some() => {
                        return Err(given_twice(path, place));
                    }
                    Some(&slot) => row[slot] = Some(value),
                    None => unknown.add(path.as_bytes(), 1),
                }
                Ok(())
            })?;
        }
    }
    Ok(row)
}

fn read_treatments<'a>(
    treatments: &'a [v1::Treatment],
    names: &Names,
    unknown: &mut Unknown,
) -> Vec<Option<Plain<'a>>> {
    let width = names.treatment.len();
    let mut rows = vec![None; treatments.len() * width];
    for (index, treatment) in treatments.iter().enumerate() {
        let row = &mut rows[index * width..(index + 1) * width];
        read_map(&treatment.features, &names.treatment, row, unknown);
    }
    rows
}

fn read_map<'a>(
    map: &'a HashMap<String, v1::Value>,
    names: &HashMap<Arc<str>, usize>,
    row: &mut [Option<Plain<'a>>],
    unknown: &mut Unknown,
) {
    for (name, value) in map {
        let value = value_of(value);
        match names.get(name.as_str()) {
            Some(&slot) => row[slot] = value,
            None => unknown.add(name.as_bytes(), usize::from(value.is_some())),
        }
    }
}
