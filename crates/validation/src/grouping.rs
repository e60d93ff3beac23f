//! Makes groups of rows.

use std::{collections::BTreeSet, mem, sync::Arc};

use outrigger_core::{Failure, Reason};
use outrigger_features::metadata::Entity;
use outrigger_tables::{Cell, Column, LeftOut, Malformed, Names, Row};

use crate::{
    encode::{put_id, put_treatment, put_typed, request},
    features::Features,
    form::{self, Form, RequestLimits},
    group::{Group, GroupRow, fail_all, malformed},
    options::{Options, Reserved},
    roles::{FeatureColumn, Roles},
    text::cut,
};

/// The most ignored columns that are named.
const MAX_IGNORED: usize = 100;

/// Makes groups of the rows of one file.
#[derive(Debug)]
pub(crate) struct Grouping {
    features: Features,
    reserved: Reserved,
    limits: RequestLimits,
    max_failed: usize,
    /// The form of all rows, if the file states the types of its columns.
    form: Option<Form>,
    roles: Arc<Roles>,
    open: Option<Open>,
    /// The user whose rows do not fit in a request, and the failure of those that follow.
    refused: Option<(Cell, Failure)>,
    /// True if a column was a feature, or a part of a request.
    has_feature: bool,
    /// A reserved column with the name of a feature.
    ambiguous: Option<String>,
    /// The columns that are neither reserved nor features of the model.
    pub(crate) ignored: BTreeSet<String>,
}

/// A group to which the next row may belong.
#[derive(Debug, Default)]
struct Open {
    group: Group,
    user: Cell,
    /// The encoded features of the user, and the number of the row that they are from.
    features: Option<(Vec<u8>, u64)>,
    treatments: Vec<u8>,
    /// The memory in which a part of a row is encoded.
    encoded: Vec<u8>,
    /// The bytes of the reserved columns.
    reserved: usize,
    failed: usize,
}

impl Grouping {
    /// Makes groups of the rows of a file with these columns; `None` if each row names its own.
    pub(crate) fn new(features: Features, options: &Options, columns: Option<&[Column]>) -> Self {
        let Options { max_treatments, memory, .. } = *options;
        let limits = RequestLimits { treatments: max_treatments, bytes: memory.request };
        let names: Names = Arc::from([]);
        let roles = Roles::new(&names, &options.reserved, (&features, columns.is_none()));
        Self {
            features,
            reserved: options.reserved.clone(),
            limits,
            form: columns.map(|columns| Form::of_columns(columns, &options.reserved)),
            max_failed: options.max_errors,
            roles: Arc::new(roles),
            open: None,
            refused: None,
            has_feature: false,
            ambiguous: None,
            ignored: BTreeSet::new(),
        }
    }

    /// Takes the next row; passes groups that are complete to `done`.
    pub(crate) fn add(&mut self, row: Result<&mut Row, Malformed>, done: &mut impl FnMut(Group)) {
        let row = match row {
            Ok(row) => row,
            Err(Malformed { number, message }) => {
                let row = GroupRow { number, ..GroupRow::default() };
                return self.add_failed(row, malformed(message), done);
            }
        };
        let (roles, is_new) = self.roles(&row.names);
        let form = self.form.unwrap_or_else(|| Form::of(row, &roles));
        if is_new {
            self.note(&roles, form);
        }
        if self.form.is_none() && form != Form::Request {
            self.note_values(row, &roles);
        }
        let head = head(row, &roles, form);
        match form {
            Form::Row => self.add_row(row, &roles, head, done),
            Form::List => {
                self.close(done);
                done(form::list(row, &roles, head, (&self.features, &self.limits)));
            }
            Form::Request => {
                self.close(done);
                done(form::http(row, &roles, head, (&self.features, &self.limits)));
            }
        }
    }

    /// Ends the group of the rows that were taken so far.
    pub(crate) fn close(&mut self, done: &mut impl FnMut(Group)) {
        if let Some(open) = self.open.take() {
            done(open.close());
        }
        self.refused = None;
    }

    /// Takes the names of columns that are not scored.
    pub(crate) fn ignore<'n>(&mut self, names: impl Iterator<Item = &'n Arc<str>>) {
        let room = MAX_IGNORED.saturating_sub(self.ignored.len());
        self.ignored.extend(names.take(room).map(|name| cut(name.to_string())));
    }

    /// Takes the columns of a file that states them, before its rows.
    pub(crate) fn take_columns(&mut self, names: &Names) {
        let (roles, _) = self.roles(names);
        self.note(&roles, self.form.unwrap_or(Form::Row));
    }

    /// Requires that no column with the name of a feature, and no reserved one, has a type that cannot
    /// be read. The others are ignored.
    ///
    /// # Errors
    /// One has.
    pub(crate) fn check_left_out(&mut self, columns: &[LeftOut]) -> Result<(), Failure> {
        let Reserved { user, treatment, expected } = &self.reserved;
        let is_needed = |name: &str| {
            let is_feature = |of: &Entity| self.features.may_hold(*of, name);
            [user, treatment, expected].iter().any(|reserved| **reserved == *name)
                || self.features.are_known()
                    && [Entity::User, Entity::Treatment].iter().any(is_feature)
        };
        if let Some(LeftOut { name, of }) = columns.iter().find(|column| is_needed(&column.name)) {
            let message = format!(
                "the column {name:?} is {of}: values are read from columns of numbers, booleans, texts \
                 and lists of them"
            );
            return Err(Failure::new(Reason::FeatureType, message));
        }
        self.ignore(columns.iter().map(|column| &column.name));
        Ok(())
    }

    /// Requires that a column of the file is a feature, and that none is a reserved one too.
    ///
    /// # Errors
    /// None is, or one is.
    pub(crate) fn check_features(&self) -> Result<(), Failure> {
        if let Some(name) = &self.ambiguous {
            let message = format!(
                "the column {name:?} is a feature of the model, and read as a reserved column: name \
                 another one as that"
            );
            return Err(Failure::new(Reason::RequestMalformed, message));
        }
        if self.has_feature || !self.features.may_be_any() {
            return Ok(());
        }
        let found = match self.ignored.is_empty() {
            true => "none".to_owned(),
            false => {
                self.ignored.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
            }
        };
        let message = format!("no column of the file is a feature of the model; it has {found}");
        Err(Failure::new(Reason::FeatureMissing, message))
    }

    /// Notes which columns of rows of this form are scored.
    fn note(&mut self, roles: &Roles, form: Form) {
        if form == Form::Request {
            self.has_feature = true;
            return;
        }
        let is_feature = |at: &usize| {
            let takes = |entity| self.features.takes(entity, &roles.names[*at]).is_some();
            self.features.are_known() && (takes(Entity::User) || takes(Entity::Treatment))
        };
        let reserved = [roles.user, roles.treatment, roles.expected];
        if let Some(at) = reserved.into_iter().flatten().find(is_feature) {
            self.ambiguous = Some(cut(roles.names[at].to_string()));
        }
        let mut columns = roles.of_user.iter().chain(&roles.of_treatment);
        self.has_feature |= columns.any(|column| column.takes.is_some());
        self.ignore(roles.ignored.iter().map(|index| &roles.names[*index]));
    }

    /// Notes which columns of a row that may have features as members have them, and which have other
    /// values.
    fn note_values(&mut self, row: &Row, roles: &Roles) {
        let columns = roles.of_user.iter().chain(&roles.of_treatment);
        for FeatureColumn { index, .. } in columns.filter(|column| column.takes.is_none()) {
            match &row.cells[*index] {
                Cell::Absent => {}
                Cell::Object(_) => self.has_feature = true,
                _ => self.ignore([&roles.names[*index]].into_iter()),
            }
        }
    }

    /// The roles of columns with these names, and true if they differ from those of the row before.
    fn roles(&mut self, names: &Names) -> (Arc<Roles>, bool) {
        let is_new = !Arc::ptr_eq(&self.roles.names, names);
        if is_new {
            let features = (&self.features, self.form.is_none());
            self.roles = Arc::new(Roles::new(names, &self.reserved, features));
        }
        (Arc::clone(&self.roles), is_new)
    }

    /// Takes a row that cannot be scored. It stays among the rows of the open group, whose order is
    /// that of the file.
    fn add_failed(&mut self, row: GroupRow, failure: Failure, done: &mut impl FnMut(Group)) {
        match &mut self.open {
            Some(open) if open.failed <= self.max_failed && open.bytes() <= self.limits.bytes => {
                open.fail(row, failure);
            }
            open => {
                if let Some(open) = open.take() {
                    done(open.close());
                }
                done(Group::failed(row, failure));
            }
        }
    }

    fn add_row(&mut self, row: &Row, roles: &Roles, head: GroupRow, done: &mut impl FnMut(Group)) {
        if let Some((user, failure)) = &self.refused
            && *user == head.user
        {
            let row = GroupRow { shares_failure: true, ..head };
            return done(Group::failed(row, failure.clone()));
        }
        let continues =
            !head.user.is_absent() && self.open.as_ref().is_some_and(|open| open.user == head.user);
        if !continues {
            self.close(done);
            self.open = Some(Open { user: head.user.clone(), ..Open::default() });
        }
        let open = self.open.get_or_insert_default();
        match open.check(&self.limits) {
            Ok(()) => {
                open.add(row, roles, head, &self.features);
                // The run ends soon, and must not hold the rest of the file until then.
                if open.failed > self.max_failed {
                    self.close(done);
                }
            }
            Err(failure) => {
                let user = head.user.clone();
                open.group.rows.push(head);
                open.group.treatments = 0;
                fail_all(&mut open.group.rows, &failure);
                self.close(done);
                self.refused = Some((user, failure));
            }
        }
    }
}

/// Takes the reserved columns out of a row. A request has ids of its own.
fn head(row: &mut Row, roles: &Roles, form: Form) -> GroupRow {
    let (number, cells) = (row.number, &mut row.cells);
    let mut taken = |index: Option<usize>| index.map(|at| mem::take(&mut cells[at]));
    let expected = taken(roles.expected).unwrap_or_default();
    let [user, treatment] = match form {
        Form::Request => [Cell::Absent, Cell::Absent],
        Form::Row | Form::List => {
            [roles.user, roles.treatment].map(|index| taken(index).unwrap_or_default())
        }
    };
    GroupRow { number, user, treatment, expected, ..GroupRow::default() }
}

impl Open {
    /// Refuses to add a treatment to a request that is as large as it may be.
    fn check(&self, limits: &RequestLimits) -> Result<(), Failure> {
        limits.check_count(self.group.treatments + 1)?;
        limits.check_bytes(self.bytes())
    }

    /// The bytes of the request and of the reserved columns.
    fn bytes(&self) -> usize {
        self.treatments.len() + self.reserved
    }

    fn add(&mut self, row: &Row, roles: &Roles, head: GroupRow, features: &Features) {
        let added = self.add_parts(row, roles, &head, features);
        match added {
            Ok(()) => {
                self.group.treatments += 1;
                self.push(head);
            }
            Err(failure) => self.fail(head, failure),
        }
    }

    fn add_parts(
        &mut self,
        row: &Row,
        roles: &Roles,
        head: &GroupRow,
        features: &Features,
    ) -> Result<(), Failure> {
        let put = |entity: Entity, columns: &[FeatureColumn], out: &mut Vec<u8>| {
            columns.iter().try_for_each(|FeatureColumn { index, takes }| {
                let (name, cell) = (&roles.names[*index], &row.cells[*index]);
                put_typed((features, entity, *takes), name, cell, out)
            })
        };
        self.encoded.clear();
        if self.features.is_none() || features.are_known() {
            put(Entity::User, &roles.of_user, &mut self.encoded)?;
            let first = || (self.encoded.clone(), row.number);
            let (first, number) = self.features.get_or_insert_with(first);
            if *first != self.encoded {
                return Err(malformed(format!("the user has other features than in row {number}")));
            }
            self.encoded.clear();
        }
        put_id(&head.treatment, &mut self.encoded);
        put(Entity::Treatment, &roles.of_treatment, &mut self.encoded)?;
        put_treatment(&self.encoded, &mut self.treatments);
        Ok(())
    }

    fn fail(&mut self, row: GroupRow, failure: Failure) {
        self.failed += 1;
        self.push(GroupRow { failure: Some(failure), ..row });
    }

    fn push(&mut self, row: GroupRow) {
        self.reserved += row.bytes();
        self.group.rows.push(row);
    }

    fn close(self) -> Group {
        let Self { mut group, user, features, treatments, .. } = self;
        if group.treatments > 0 {
            let (key, features) = (user.to_string(), features.unwrap_or_default().0);
            group.request = request(&key, &key, &features, &treatments);
        }
        group
    }
}

#[cfg(test)]
mod tests;
