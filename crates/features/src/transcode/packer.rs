//! The packer: appends the requests of a call to the engine's tensors.

use outrigger_proto::outrigger::v1::TreatmentError;

use super::{
    columns::Columns, part::Part, request::User, row::Rows, stop::Stop, table::Table,
    template::Template, unknown::Unknown,
};
use crate::{
    call::{Call, Trace},
    faults::Faults,
    meter::{Meter, OFTEN},
    options::Options,
    packed::{Ids, Packed, UserRows},
    place::Place,
    plan::{Plan, RowResult, left_out},
    tensors::Tensors,
    wire::Malformed,
};

/// Appends the rows of one user after the other.
#[derive(Debug)]
pub(super) struct Packer<'p, 'r> {
    pub(super) plan: &'p Plan,
    meter: &'p dyn Meter,
    traced: bool,
    tensors: Tensors<'p>,
    unknown: Vec<Vec<String>>,
    user_rows: Rows<'p, 'r>,
    /// Created when the first treatment needs it.
    pub(super) treatments: Option<Rows<'p, 'r>>,
    pub(super) template: Template<'p>,
    /// The faults found so far. After the first one, the tensors are of no use.
    pub(super) faults: Faults,
}

/// The treatments of a user that were left out, and the ids of the others if the request
/// asks for them.
type Outcome<'r> = (Vec<TreatmentError>, Option<Vec<&'r [u8]>>);

impl<'p, 'r> Packer<'p, 'r> {
    /// Creates a packer with room for `users` users and `treatments` treatments in total.
    pub(super) fn new(plan: &'p Plan, call: &Call<'p>, users: usize, treatments: usize) -> Self {
        let (inputs, fields) = (&plan.inputs, &plan.fields);
        let traced = call.traced;
        Self {
            plan,
            meter: call.meter,
            traced,
            tensors: Tensors::new(plan, traced, users, treatments),
            unknown: Vec::new(),
            user_rows: Rows::new(inputs, &fields.user, traced),
            treatments: None,
            template: Template::new(inputs, &fields.treatment, traced),
            faults: Faults::default(),
        }
    }

    /// Appends one user and its treatments, and collects their faults. `unknown` already holds the
    /// unknown features found in the user's object and table.
    pub(super) fn add(
        &mut self,
        part: &mut Part<'_, 'r>,
        mut unknown: Unknown,
        options: Options,
        place: &Place,
    ) -> Result<(), Stop> {
        self.begin_request();
        self.add_user(part, &mut unknown, place)?;
        let (errors, ids) = match &part.table {
            Some(table) => self.add_columns(part, table, &options, place),
            None => self.add_treatments(part, &mut unknown, &options, place)?,
        };
        self.tensors.tally.counts.unknown += unknown.count;
        if let Some(names) = unknown.names {
            self.unknown.push(names.into_iter().collect());
        }
        let user = UserRows {
            request_id: part.request.request_id.into(),
            requested: part.count,
            errors,
            ids: ids.map(|ids| Ids::copied(&ids)),
            skip: options.skip,
            top_k: options.top_k,
            outputs: options.outputs,
        };
        self.tensors.add_user(user);
        Ok(())
    }

    /// Resets what was learned from the previous user's request.
    fn begin_request(&mut self) {
        self.template.begin_request();
        for rows in self.treatments.iter_mut().chain([&mut self.user_rows]) {
            rows.begin_request();
        }
    }

    fn add_user(
        &mut self,
        part: &mut Part<'_, 'r>,
        unknown: &mut Unknown,
        place: &Place,
    ) -> Result<(), Stop> {
        let row = self.tensors.begin_user();
        let (rows, buffers) = (&mut self.user_rows, &mut self.tensors.buffers);
        rows.begin(row);
        for features in part.request.looked_up {
            rows.read(features, buffers)?;
        }
        if let User::Features(parts) = &part.request.user {
            for part in parts {
                rows.read(part, buffers)?;
            }
        }
        for (slot, value) in part.object.drain(..) {
            rows.set_merged(slot, value, buffers)?;
        }
        rows.count_unknown(unknown);
        let finished = rows.finish(self.faults.room(), buffers, &mut self.tensors.tally);
        let bad = finished.err().into_iter().flatten();
        self.faults.extend(bad.map(|bad| bad.of_user(place)));
        Ok(())
    }

    fn add_treatments(
        &mut self,
        part: &Part<'_, 'r>,
        unknown: &mut Unknown,
        options: &Options,
        place: &Place,
    ) -> Result<Outcome<'r>, Stop> {
        self.tensors.make_room(part.count);
        let (mut errors, mut ids) = (Vec::new(), options.ids(part.count));
        let (treatments, mut index) = (&part.request.treatments, 0);
        loop {
            index += self.add_alike(&treatments[index..], unknown, ids.as_mut());
            let Some(body) = treatments.get(index) else { break };
            if index % OFTEN == 0 {
                self.meter.proceed()?;
            }
            let (id, added) = self.add_treatment(body, self.most(options), unknown)?;
            match added {
                Ok(()) => {
                    if let Some(ids) = &mut ids {
                        ids.push(id);
                    }
                }
                Err(bad) if options.skip => errors.extend(left_out(bad, index, id)),
                Err(bad) => {
                    let path = |feature: &str| format!("treatments[{index}].features[{feature:?}]");
                    self.faults.add_treatment(bad, (index, id), path, place);
                }
            }
            if self.faults.room() == 0 {
                break;
            }
            index += 1;
        }
        self.tensors.trim();
        Ok((errors, ids))
    }

    /// The most faults of a treatment that are of interest.
    fn most(&self, options: &Options) -> usize {
        if options.skip { 1 } else { self.faults.room() }
    }

    /// Writes treatments to the next rows as long as they match the template; returns
    /// their number.
    fn add_alike(
        &mut self,
        treatments: &[&'r [u8]],
        unknown: &mut Unknown,
        ids: Option<&mut Vec<&'r [u8]>>,
    ) -> usize {
        let Tensors { treatment_rows: row, buffers, tally, .. } = &mut self.tensors;
        let applied = self.template.apply(treatments, *row, buffers, tally, unknown, ids);
        *row += applied;
        applied
    }

    /// Writes one treatment to the next row; the row is kept only if it succeeds.
    fn add_treatment(
        &mut self,
        body: &'r [u8],
        most: usize,
        unknown: &mut Unknown,
    ) -> Result<(&'r [u8], RowResult<'p>), Malformed> {
        let Tensors { treatment_rows: row, buffers, tally, .. } = &mut self.tensors;
        let Plan { inputs, fields, .. } = self.plan;
        let rows = || Rows::new(inputs, &fields.treatment, self.traced);
        let rows = self.treatments.get_or_insert_with(rows);
        rows.begin(*row);
        let id = rows.read(body, buffers)?;
        rows.count_unknown(unknown);
        let added = rows.finish(most, buffers, tally);
        if added.is_ok() {
            *row += 1;
            self.template.learn(body);
        }
        Ok((id, added))
    }

    fn add_columns(
        &mut self,
        part: &Part<'_, 'r>,
        table: &Table<'r>,
        options: &Options,
        place: &Place,
    ) -> Outcome<'r> {
        let (inputs, fields, count) = (&self.plan.inputs, &self.plan.fields.treatment, part.count);
        let (sources, shared) = (&part.sources, part.request.shared);
        let columns = Columns { inputs, fields, table, sources, count, shared };
        if columns.append(&mut self.tensors.buffers, &mut self.tensors.tally) {
            self.tensors.treatment_rows += count;
            let mut ids = options.ids(count);
            if let Some(ids) = &mut ids {
                ids.extend(table.ids().take(count));
            }
            return (Vec::new(), ids);
        }
        self.tensors.make_room(count);
        let (mut errors, mut ids) = (Vec::new(), options.ids(count));
        for (index, id) in (0..count).zip(table.ids()) {
            let most = self.most(options);
            let Tensors { treatment_rows: row, buffers, tally, .. } = &mut self.tensors;
            match columns.write_row(most, (index, *row), buffers, tally) {
                Ok(()) => {
                    *row += 1;
                    if let Some(ids) = &mut ids {
                        ids.push(id);
                    }
                }
                Err(bad) if options.skip => errors.extend(left_out(bad, index, id)),
                Err(bad) => {
                    let path = |feature: &str| format!("treatment_table[{feature:?}][{index}]");
                    self.faults.add_treatment(bad, (index, id), path, place);
                }
            }
            if self.faults.room() == 0 {
                break;
            }
        }
        self.tensors.trim();
        (errors, ids)
    }

    /// Pads and shapes the tensors.
    pub(super) fn finish(self) -> (Packed, Trace) {
        self.tensors.finish(self.unknown)
    }
}
