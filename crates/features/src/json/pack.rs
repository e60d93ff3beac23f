//! Packs a request in JSON: in one pass, from its text to the bytes of the tensors.

use std::{borrow::Cow, ops::Range};

use outrigger_core::{Failure, Reason};
use outrigger_json::{Cursor, Odd, Read};
use outrigger_proto::outrigger::v1::{ResponseOptions, TreatmentError};

use super::{
    request::{read_options, read_small},
    row::Row,
    template::{Shape, Target, Template, read_id},
};
use crate::{
    call::{Call, Trace},
    entries::{Entries, STRANGERS, STRANGERS_PER_ROW},
    faults::Faults,
    limits::{check_size, refuse_too_many},
    meter::OFTEN,
    options::Options,
    packed::{Ids, Packed, UserRows},
    place::Place,
    plan::{Plan, RowResult, left_out},
    reader::Node,
    tensors::Tensors,
};

/// The reason why a request cannot be packed in one pass.
#[derive(Debug)]
pub(super) enum Stop {
    Odd,
    Refused(Box<Failure>),
}

impl From<Odd> for Stop {
    fn from(_: Odd) -> Self {
        Self::Odd
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Refused(Box::new(failure))
    }
}

/// The parts of a request that are packed, as ranges of its text.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    pub(super) user: Option<Range<usize>>,
    pub(super) treatments: Option<Range<usize>>,
    pub(super) options: Option<Range<usize>>,
    /// The number of objects in `treatments`.
    pub(super) count: usize,
}

/// The treatments of a request: those left out, and the ids of the others if they are wanted.
type Treatments = (Vec<TreatmentError>, Option<Ids>);

/// Packs the members of `body`.
///
/// # Errors
/// [`Stop::Odd`] for a body that may be malformed.
pub(super) fn pack(
    plan: &Plan,
    (body, members): (&[u8], &Members),
    request_id: &str,
    call: &Call<'_>,
) -> Result<(Packed, Trace), Stop> {
    let place = Place::default();
    refuse_too_many(members.count, call.limits.max_treatments, "treatments", &place)?;
    check_size(plan, [members.count].into_iter(), call.limits, (call.traced, call.meter))?;
    call.meter.proceed()?;
    let part = |range: &Option<Range<usize>>| {
        let text = range.as_ref().map(|range| body.get(range.clone()).ok_or(Odd)).transpose();
        text.map(|text| text.map(Cursor::new))
    };
    let sent = options(part(&members.options)?)?;
    let options = Options::read(Some(&sent), false, call, plan, &place);
    let mut packer = Packer::new(plan, call, members.count);
    packer.user(part(&members.user)?, &place)?;
    let wanted = Wanted { ids: sent.treatment_ids, skip: options.as_ref().is_ok_and(|it| it.skip) };
    let (errors, ids) = packer.treatments(part(&members.treatments)?, &wanted)?;
    let options = options?;
    packer.faults.check()?;
    packer.tensors.add_user(UserRows {
        request_id: request_id.into(),
        requested: members.count,
        errors,
        ids,
        skip: options.skip,
        top_k: options.top_k,
        outputs: options.outputs,
    });
    Ok(packer.tensors.finish(Vec::new()))
}

fn options(cursor: Option<Cursor<'_>>) -> Read<ResponseOptions> {
    let value = cursor.map(|cursor| read_small(cursor.rest)).transpose().map_err(|_| Odd)?;
    let node = value.as_ref().map(|value| Node { path: String::new(), value });
    read_options(node).map_err(|_| Odd)
}

/// The wishes of a request about its treatments.
struct Wanted {
    ids: bool,
    /// True if treatments with errors are left out.
    skip: bool,
}

struct Packer<'p, 'c> {
    plan: &'p Plan,
    call: &'c Call<'c>,
    tensors: Tensors<'p>,
    /// The number of treatments that the tensors have room for.
    count: usize,
    /// The faults found so far, which are reported unless the text after them is malformed.
    faults: Faults,
}

impl<'p, 'c> Packer<'p, 'c> {
    fn new(plan: &'p Plan, call: &'c Call<'c>, count: usize) -> Self {
        let tensors = Tensors::new(plan, call.traced, 1, count);
        Self { plan, call, tensors, count, faults: Faults::default() }
    }

    fn user(&mut self, cursor: Option<Cursor<'_>>, place: &Place) -> Read<()> {
        let mut row = Row::new(&self.plan.inputs, &self.plan.fields.user, self.call.traced);
        row.begin(self.tensors.begin_user());
        if let Some(mut cursor) = cursor {
            features(&mut row, &mut cursor, &mut self.tensors, None, 1)?;
            cursor.end()?;
        }
        self.count_unknown(&row, &mut Entries(STRANGERS));
        let Tensors { buffers, tally, .. } = &mut self.tensors;
        let bad = row.finish(self.faults.room(), buffers, tally).err().into_iter().flatten();
        self.faults.extend(bad.map(|bad| bad.of_user(place)));
        Ok(())
    }

    fn count_unknown(&mut self, row: &Row<'_>, left: &mut Entries) {
        left.0 += STRANGERS_PER_ROW;
        self.tensors.tally.counts.unknown += row.unknown as u64;
        if let Err(error) = left.take_many(row.unknown) {
            self.faults.end(Failure::new(Reason::RequestMalformed, error.to_string()));
        }
    }

    fn treatments(
        &mut self,
        cursor: Option<Cursor<'_>>,
        wanted: &Wanted,
    ) -> Result<Treatments, Stop> {
        let mut ids = wanted.ids.then(|| Ids::with_room(self.count));
        let (mut errors, mut index) = (Vec::new(), 0);
        let Some(mut cursor) = cursor.filter(|cursor| cursor.peek() != Some(b'n')) else {
            return Ok((errors, ids));
        };
        self.tensors.make_room(self.count);
        let fields = &self.plan.fields.treatment;
        let mut row = Row::new(&self.plan.inputs, fields, self.call.traced);
        let (mut template, mut strangers) = (Template::new(), Entries(STRANGERS));
        cursor.array(|cursor| {
            if index % OFTEN == 0 {
                self.call.meter.proceed()?;
            }
            let id = self.treatment(cursor, &mut row, &mut template)?;
            self.count_unknown(&row, &mut strangers);
            match self.add(&mut row, wanted.skip) {
                Ok(()) => ids.iter_mut().for_each(|ids| ids.push(&id)),
                Err(bad) if wanted.skip => errors.extend(left_out(bad, index, &id)),
                Err(bad) => {
                    let path = |feature: &str| format!("treatments[{index}].features[{feature:?}]");
                    self.faults.add_treatment(bad, (index, &*id), path, &Place::default());
                }
            }
            index += 1;
            Ok::<_, Stop>(())
        })?;
        cursor.end()?;
        self.tensors.trim();
        Ok((errors, ids))
    }

    /// Reads one treatment to the next row; returns its id.
    #[inline]
    fn treatment<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        row: &mut Row<'p>,
        template: &mut Template<'a>,
    ) -> Read<Cow<'a, [u8]>> {
        let (start, index) = (*cursor, self.tensors.treatment_rows);
        if index >= self.count {
            return Err(Odd);
        }
        row.begin(index);
        if let Some(id) = template.apply(cursor, row, &mut self.tensors.buffers, FEATURES)? {
            return Ok(id);
        }
        *cursor = start;
        row.begin(index);
        template.begin(start.rest);
        let id = treatment(cursor, row, &mut self.tensors, &mut template.shape)?;
        template.end(cursor.rest);
        Ok(id)
    }

    /// Completes the row of a treatment; the row is kept only if it succeeds.
    fn add(&mut self, row: &mut Row<'p>, skip: bool) -> RowResult<'p> {
        let most = if skip { 1 } else { self.faults.room() };
        let Tensors { treatment_rows, buffers, tally, .. } = &mut self.tensors;
        row.finish(most, buffers, tally)?;
        *treatment_rows += 1;
        Ok(())
    }
}

/// The number of arrays and objects around the features of a treatment.
const FEATURES: u32 = 4;

/// Reads a treatment key by key.
pub(super) fn treatment<'a>(
    cursor: &mut Cursor<'a>,
    row: &mut Row<'_>,
    tensors: &mut Tensors<'_>,
    shape: &mut Shape<'a>,
) -> Read<Cow<'a, [u8]>> {
    let (mut id, mut given) = (None, false);
    cursor.object(|key, cursor| match key.plain() {
        Some(b"id") if id.is_none() => {
            let before = cursor.rest;
            id = Some(read_id(cursor)?);
            shape.learn(before, Target::Id, cursor.rest);
            Ok(())
        }
        Some(b"features") if !given => {
            given = true;
            features(row, cursor, tensors, Some(shape), FEATURES - 1)
        }
        _ => Err(Odd),
    })?;
    Ok(id.unwrap_or_default())
}

/// Reads features: an object, or null.
fn features<'a>(
    row: &mut Row<'_>,
    cursor: &mut Cursor<'a>,
    tensors: &mut Tensors<'_>,
    shape: Option<&mut Shape<'a>>,
    depth: u32,
) -> Read<()> {
    match cursor.peek() {
        Some(b'n') => cursor.word("null"),
        _ => row.features(cursor, &mut tensors.buffers, shape, depth),
    }
}
