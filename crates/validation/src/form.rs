//! Rows that are requests of their own: the list form and the request form.

use outrigger_core::{Failure, Reason};
use outrigger_feature_table::Takes;
use outrigger_features::metadata::Entity;
use outrigger_tables::{Cell, Column, Kind, Row};

use crate::{
    encode::{put_feature, put_id, put_treatment, put_typed, request},
    features::Features,
    group::{Group, GroupRow, malformed},
    options::Reserved,
    roles::{FeatureColumn, Roles, TREATMENTS},
};

/// The limits of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    /// The most treatments.
    pub(crate) treatments: usize,
    /// The most bytes of its treatments, and of the reserved columns of its rows.
    pub(crate) bytes: usize,
}

impl RequestLimits {
    /// Refuses a request with more treatments than it may have.
    pub(crate) fn check_count(&self, treatments: usize) -> Result<(), Failure> {
        let most = self.treatments;
        if treatments <= most {
            return Ok(());
        }
        let message = format!("the user has more than {most} treatments");
        Err(Failure::new(Reason::TooManyTreatments, message))
    }

    /// Refuses a request that takes more bytes than it may.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<(), Failure> {
        let most = self.bytes;
        if bytes <= most {
            return Ok(());
        }
        let message = format!("the treatments of the user take more than {most} bytes");
        Err(Failure::new(Reason::TooLarge, message))
    }
}

/// The encoded parts of a request.
#[derive(Debug, Default)]
struct Parts {
    user: Vec<u8>,
    treatments: Vec<u8>,
    count: usize,
}

/// The features of the model, and the limits of a request.
pub(crate) type Model<'a> = (&'a Features, &'a RequestLimits);

/// The form of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One user and one treatment.
    Row,
    /// One user and a list of treatments.
    List,
    /// A request in the HTTP form.
    Request,
}

impl Form {
    /// The form of all rows with these columns.
    pub(crate) fn of_columns(columns: &[Column], reserved: &Reserved) -> Self {
        let names = [&reserved.treatment, &reserved.expected];
        let is_list = |column: &Column| {
            matches!(column.kind, Kind::List(_)) && names.iter().any(|name| ***name == *column.name)
        };
        if columns.iter().any(is_list) { Self::List } else { Self::Row }
    }

    /// The form of a row that names its own columns.
    pub(crate) fn of(row: &Row, roles: &Roles) -> Self {
        let cell = |index: Option<usize>| index.map(|index| &row.cells[index]);
        let is_list = |index| matches!(cell(index), Some(Cell::List(_)));
        // A feature may be called like the treatments of a request.
        let has_objects = |cell: &Cell| match cell {
            Cell::List(cells) => matches!(cells.first(), None | Some(Cell::Object(_))),
            _ => false,
        };
        if cell(roles.treatments).is_some_and(has_objects)
            || matches!(cell(roles.user), Some(Cell::Object(_)))
        {
            Self::Request
        } else if is_list(roles.treatment) || is_list(roles.expected) {
            Self::List
        } else {
            Self::Row
        }
    }
}

/// The group of a row in the list form.
pub(crate) fn list(row: &Row, roles: &Roles, head: GroupRow, model: Model<'_>) -> Group {
    let key = head.user.to_string();
    match list_parts(row, roles, &head, model) {
        Ok(parts) => parts.group((&key, &key), head),
        Err(failure) => Group::failed(head, failure),
    }
}

fn list_parts(
    row: &Row,
    roles: &Roles,
    head: &GroupRow,
    (features, limits): Model<'_>,
) -> Result<Parts, Failure> {
    let ids = match &head.treatment {
        Cell::List(ids) => Some(ids),
        Cell::Absent => None,
        _ => return Err(malformed("treatment: not a list, although expected is one")),
    };
    let count = match (ids, &head.expected) {
        (Some(ids), _) => ids.len(),
        (None, Cell::List(expected)) => expected.len(),
        (None, _) => count_of(row, roles, features),
    };
    limits.check_count(count)?;
    let mut parts = Parts { count, ..Parts::default() };
    for FeatureColumn { index, takes } in &roles.of_user {
        let (name, cell) = (&roles.names[*index], &row.cells[*index]);
        match put_typed((features, Entity::User, *takes), name, cell, &mut parts.user) {
            // It has a value for each treatment, which no feature of the user can have.
            Err(_) if !features.are_known() && matches!(cell, Cell::List(_)) => {}
            put => put?,
        }
    }
    let columns = treatment_columns(row, roles, count, features).map_err(malformed)?;
    for at in 0..count {
        let mut treatment = Vec::new();
        if let Some(ids) = ids {
            put_id(&ids[at], &mut treatment);
        }
        for Treatments { name, takes, cells } in &columns {
            put_typed((features, Entity::Treatment, *takes), name, &cells[at], &mut treatment)?;
        }
        put_treatment(&treatment, &mut parts.treatments);
        limits.check_bytes(parts.treatments.len())?;
    }
    Ok(parts)
}

/// The number of treatments of a row that has neither ids nor expected scores: that of the values in
/// the first column that has only features of treatments; 0 if there is none.
fn count_of(row: &Row, roles: &Roles, features: &Features) -> usize {
    let only = |column: &&FeatureColumn| {
        features.are_known() && !features.may_hold(Entity::User, &roles.names[column.index])
    };
    let mut lists = roles.of_treatment.iter().filter(only).map(|column| &row.cells[column.index]);
    lists
        .find_map(|cell| if let Cell::List(cells) = cell { Some(cells.len()) } else { None })
        .unwrap_or_default()
}

/// A column with a value for each treatment.
struct Treatments<'a> {
    name: &'a str,
    takes: Option<Takes>,
    cells: &'a [Cell],
}

/// The columns with a value for each of the `count` treatments.
fn treatment_columns<'a>(
    row: &'a Row,
    roles: &'a Roles,
    count: usize,
    features: &Features,
) -> Result<Vec<Treatments<'a>>, String> {
    let mut columns = Vec::new();
    for FeatureColumn { index, takes } in &roles.of_treatment {
        let (name, cell) = (&*roles.names[*index], &row.cells[*index]);
        match cell {
            Cell::List(cells) if cells.len() == count => {
                columns.push(Treatments { name, takes: *takes, cells });
            }
            Cell::Absent => {}
            // It is a feature of the user.
            _ if !features.are_known() => {}
            _ if features.takes(Entity::User, name).is_some() => {}
            Cell::List(cells) => {
                let found = cells.len();
                return Err(format!("{name}: {found} values for {count} treatments"));
            }
            _ => return Err(format!("{name}: not a list with a value for each treatment")),
        }
    }
    Ok(columns)
}

/// The group of a row in the request form.
pub(crate) fn http(row: &mut Row, roles: &Roles, mut head: GroupRow, model: Model<'_>) -> Group {
    let mut texts = [String::new(), String::new()];
    match http_parts(row, roles, &mut texts, &mut head, model) {
        Ok(parts) => parts.group((&texts[0], &texts[1]), head),
        Err(failure) => Group::failed(head, failure),
    }
}

/// Reads the members of a request; `texts` are its id and its routing key.
fn http_parts(
    row: &mut Row,
    roles: &Roles,
    texts: &mut [String; 2],
    head: &mut GroupRow,
    (features, limits): Model<'_>,
) -> Result<Parts, Failure> {
    let mut parts = Parts::default();
    let mut ids = Vec::new();
    for (index, cell) in row.cells.drain(..).enumerate() {
        match (&*roles.names[index], cell) {
            _ if roles.expected == Some(index) => {}
            // The command names the model.
            (_, Cell::Absent) | ("model", _) => {}
            ("request_id", Cell::Text(text)) => texts[0] = text,
            ("routing_key", Cell::Text(text)) => texts[1] = text,
            ("user", Cell::Object(user)) => {
                put_members((features, Entity::User), &user, &mut parts.user)?;
            }
            (TREATMENTS, Cell::List(treatments)) => {
                parts.count = treatments.len();
                limits.check_count(parts.count)?;
                for (at, treatment) in treatments.into_iter().enumerate() {
                    let read = http_treatment(treatment, &mut parts.treatments, features);
                    let place = |message: &str| format!("{TREATMENTS}[{at}]: {message}");
                    ids.push(read.map_err(|failure| failure.map_message(place))?);
                    limits.check_bytes(parts.treatments.len())?;
                }
            }
            ("options", _) => return Err(malformed("options: every treatment gets a score")),
            (name @ ("request_id" | "routing_key" | "user" | TREATMENTS), _) => {
                return Err(malformed(format!("{name}: not of the type that a request has")));
            }
            (name, _) => return Err(malformed(format!("{name}: not a part of a request"))),
        }
    }
    let key = if texts[1].is_empty() { &texts[0] } else { &texts[1] };
    head.user = if key.is_empty() { Cell::Absent } else { Cell::Text(key.clone()) };
    let has_ids = !ids.iter().all(Cell::is_absent);
    head.treatment = if has_ids { Cell::List(ids) } else { Cell::Absent };
    Ok(parts)
}

/// Appends a treatment of a request and returns its id.
fn http_treatment(cell: Cell, out: &mut Vec<u8>, features: &Features) -> Result<Cell, Failure> {
    let Cell::Object(members) = cell else { return Err(malformed("not an object")) };
    let (mut treatment, mut id) = (Vec::new(), Cell::Absent);
    for (key, cell) in members {
        match (key.as_str(), cell) {
            (_, Cell::Absent) => {}
            ("id", Cell::Text(text)) => id = Cell::Text(text),
            ("features", Cell::Object(members)) => {
                put_members((features, Entity::Treatment), &members, &mut treatment)?;
            }
            ("id" | "features", _) => {
                return Err(malformed(format!("{key}: not of the type that a treatment has")));
            }
            _ => return Err(malformed(format!("{key}: not a part of a treatment"))),
        }
    }
    put_id(&id, &mut treatment);
    put_treatment(&treatment, out);
    Ok(id)
}

fn put_members(
    of: (&Features, Entity),
    members: &[(String, Cell)],
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    members.iter().try_for_each(|(name, cell)| put_feature(of, name, cell, out))
}

impl Parts {
    fn group(self, (id, routing_key): (&str, &str), head: GroupRow) -> Group {
        Group {
            request: request(id, routing_key, &self.user, &self.treatments),
            treatments: self.count,
            rows: vec![GroupRow { is_list: true, ..head }],
        }
    }
}
