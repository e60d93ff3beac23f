//! One request of a call, parsed as far as its size and its feature names.

use super::{
    merged::Merged,
    object,
    request::{Request, User},
    stop::Stop,
    table::{Source, Table},
    unknown::Unknown,
};
use crate::{
    limits::{Limits, max_columns, refuse_columns, refuse_too_many},
    place::Place,
    plan::Plan,
};

/// One request of a call, with its table and object split into parts as well.
#[derive(Debug)]
pub(super) struct Part<'q, 'a> {
    pub(super) request: &'q Request<'a>,
    /// The features of a user that is an object, by their slots.
    pub(super) object: Vec<(usize, Merged<'a>)>,
    pub(super) table: Option<Table<'a>>,
    /// For every slot, its column in the table.
    pub(super) sources: Vec<Option<Source>>,
    /// Number of treatments.
    pub(super) count: usize,
}

impl<'q, 'a> Part<'q, 'a> {
    /// Splits a request's table into its parts and counts the treatments.
    pub(super) fn read(
        request: &'q Request<'a>,
        plan: &Plan,
        limits: &Limits,
        place: &Place,
    ) -> Result<Self, Stop> {
        let max = limits.max_treatments;
        let (object, table, sources, count) = (Vec::new(), None, Vec::new(), request.sent);
        refuse_too_many(count, max, "treatments", place)?;
        let Some(parts) = &request.table else {
            return Ok(Self { request, object, table, sources, count });
        };
        if count > 0 {
            let message = "treatments and treatment_table exclude each other";
            return Err(place.malformed("treatment_table", message).into());
        }
        let max_columns = max_columns(plan.fields.treatment.len());
        let table = Table::read(parts, max, max_columns)?;
        refuse_columns(table.columns(), max_columns, place)?;
        let count = table.count(place)?;
        refuse_too_many(count, max, "treatment_table", place)?;
        Ok(Self { request, object, table: Some(table), sources, count })
    }

    /// Matches the names in an object and a table, which must be unique, to slots, and
    /// checks the sizes of the table's columns.
    pub(super) fn match_names(
        &mut self,
        plan: &Plan,
        unknown: &mut Unknown,
        place: &Place,
    ) -> Result<(), Stop> {
        if let User::Object(parts) = &self.request.user {
            self.object = object::features(parts, &plan.fields.user, unknown, place)?;
        }
        if let Some(table) = &mut self.table {
            self.sources = table.sources(self.count, &plan.fields.treatment, unknown, place)?;
        }
        Ok(())
    }
}
