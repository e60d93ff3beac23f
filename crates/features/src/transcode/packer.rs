//! The packer: appends the requests of a call to the engine's tensors.

use outrigger_core::Failure;
use outrigger_proto::outrigger::v1::{TreatmentError, ValueOrigin};
use smallvec::SmallVec;

use super::{
    columns::Columns, part::Part, request::User, row::Rows, stop::Stop, table::Table, tally::Tally,
    template::Template, unknown::Unknown,
};
use crate::{
    call::{Call, Trace},
    column::Buffer,
    finish,
    metadata::Entity,
    meter::Meter,
    options::Options,
    packed::{Ids, Packed, UserRows},
    place::Place,
    plan::{BadFeature, InputPlan, Plan},
    wire::Malformed,
};

/// The number of treatments after which the time is looked at again.
const OFTEN: usize = 64;

/// Appends the rows of one user after the other; pads at the end, when T is known.
#[derive(Debug)]
pub(super) struct Packer<'p, 'r> {
    plan: &'p Plan,
    meter: &'p dyn Meter,
    traced: bool,
    /// For each input, its elements.
    buffers: Vec<Buffer>,
    tally: Tally,
    users: Vec<UserRows>,
    /// The number of treatments of all users so far.
    treatment_rows: usize,
    unknown: Vec<Vec<String>>,
    single_wanted: bool,
    user_rows: Rows<'p, 'r>,
    /// Created when the first treatment needs it.
    pub(super) treatments: Option<Rows<'p, 'r>>,
    pub(super) template: Template<'p>,
}

/// The treatments of a user that were left out, and the ids of the others if the request
/// asks for them.
type Outcome<'r> = (Vec<TreatmentError>, Option<Vec<&'r [u8]>>);

impl<'p, 'r> Packer<'p, 'r> {
    /// Creates a packer with room for `users` users and `treatments` treatments in total.
    pub(super) fn new(plan: &'p Plan, call: &Call<'p>, users: usize, treatments: usize) -> Self {
        let buffer = |input: &InputPlan| {
            let rows = match input.entity {
                Entity::Treatment => treatments,
                _ => users,
            };
            Buffer::new(input.dtype, rows * input.width)
        };
        let (inputs, fields) = (&plan.inputs, &plan.fields);
        let traced = call.traced;
        Self {
            plan,
            meter: call.meter,
            traced,
            buffers: inputs.iter().map(buffer).collect(),
            tally: Tally::new(inputs.len(), traced),
            users: Vec::with_capacity(users),
            treatment_rows: 0,
            unknown: Vec::new(),
            single_wanted: false,
            user_rows: Rows::new(inputs, &fields.user, traced),
            treatments: None,
            template: Template::new(inputs, &fields.treatment, traced),
        }
    }

    /// Appends one user and its treatments. `unknown` already holds the unknown features
    /// found in the user's object and table.
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
            Some(table) => self.add_columns(part, table, &options, place)?,
            None => self.add_treatments(part, &mut unknown, &options, place)?,
        };
        self.tally.counts.unknown += unknown.count;
        if let Some(names) = unknown.names {
            self.unknown.push(names.into_iter().collect());
        }
        self.single_wanted |= options.any_single(self.plan);
        let user = UserRows {
            request_id: part.request.request_id.into(),
            requested: part.count,
            errors,
            ids: ids.map(|ids| Ids::copied(&ids)),
            top_k: options.top_k,
            outputs: options.outputs,
        };
        self.add_computed(user.kept(), &user.request_id);
        self.users.push(user);
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
        let row = self.users.len();
        resize(&mut self.buffers, self.plan, Entity::User, row + 1);
        let (rows, buffers) = (&mut self.user_rows, &mut self.buffers);
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
        rows.finish(buffers, &mut self.tally).map_err(|bad| bad.of_user(place).into())
    }

    fn add_treatments(
        &mut self,
        part: &Part<'_, 'r>,
        unknown: &mut Unknown,
        options: &Options,
        place: &Place,
    ) -> Result<Outcome<'r>, Stop> {
        let before = self.treatment_rows;
        resize(&mut self.buffers, self.plan, Entity::Treatment, before + part.count);
        let (mut errors, mut ids) = (Vec::new(), options.ids(part.count));
        let (treatments, mut index) = (&part.request.treatments, 0);
        loop {
            index += self.add_alike(&treatments[index..], unknown, ids.as_mut());
            let Some(body) = treatments.get(index) else { break };
            if index % OFTEN == 0 {
                self.meter.proceed()?;
            }
            let position = u32::try_from(index).expect("treatments are limited");
            let (id, added) = self.add_treatment(body, unknown)?;
            match added {
                Ok(()) => {
                    if let Some(ids) = &mut ids {
                        ids.push(id);
                    }
                }
                Err(bad) if options.skip => errors.push(bad.left_out(position, id)),
                Err(bad) => {
                    let path = format!("treatments[{index}].features[{:?}]", bad.feature);
                    return Err(bad.of_treatment(index, id, &path, place).into());
                }
            }
            index += 1;
        }
        resize(&mut self.buffers, self.plan, Entity::Treatment, self.treatment_rows);
        Ok((errors, ids))
    }

    /// Writes treatments to the next rows as long as they match the template; returns
    /// their number.
    fn add_alike(
        &mut self,
        treatments: &[&'r [u8]],
        unknown: &mut Unknown,
        ids: Option<&mut Vec<&'r [u8]>>,
    ) -> usize {
        let (row, buffers, tally) = (self.treatment_rows, &mut self.buffers, &mut self.tally);
        let applied = self.template.apply(treatments, row, buffers, tally, unknown, ids);
        self.treatment_rows += applied;
        applied
    }

    /// Writes one treatment to the next row; the row is kept only if it succeeds.
    fn add_treatment(
        &mut self,
        body: &'r [u8],
        unknown: &mut Unknown,
    ) -> Result<(&'r [u8], Result<(), BadFeature<'p>>), Malformed> {
        let (row, buffers, tally) = (self.treatment_rows, &mut self.buffers, &mut self.tally);
        let Plan { inputs, fields, .. } = self.plan;
        let rows = || Rows::new(inputs, &fields.treatment, self.traced);
        let rows = self.treatments.get_or_insert_with(rows);
        rows.begin(row);
        let id = rows.read(body, buffers)?;
        rows.count_unknown(unknown);
        let added = rows.finish(buffers, tally);
        if added.is_ok() {
            self.treatment_rows += 1;
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
    ) -> Result<Outcome<'r>, Failure> {
        let (inputs, fields, count) = (&self.plan.inputs, &self.plan.fields.treatment, part.count);
        let (sources, shared) = (&part.sources, part.request.shared);
        let columns = Columns { inputs, fields, table, sources, count, shared };
        if columns.append(&mut self.buffers, &mut self.tally) {
            self.treatment_rows += count;
            let mut ids = options.ids(count);
            if let Some(ids) = &mut ids {
                ids.extend(table.ids().take(count));
            }
            return Ok((Vec::new(), ids));
        }
        let before = self.treatment_rows;
        resize(&mut self.buffers, self.plan, Entity::Treatment, before + count);
        let (mut errors, mut ids) = (Vec::new(), options.ids(count));
        for (index, id) in (0..count).zip(table.ids()) {
            let position = u32::try_from(index).expect("treatments are limited");
            let row = self.treatment_rows;
            match columns.write_row(index, row, &mut self.buffers, &mut self.tally) {
                Ok(()) => {
                    self.treatment_rows += 1;
                    if let Some(ids) = &mut ids {
                        ids.push(id);
                    }
                }
                Err(bad) if options.skip => errors.push(bad.left_out(position, id)),
                Err(bad) => {
                    let path = format!("treatment_table[{:?}][{index}]", bad.feature);
                    return Err(bad.of_treatment(index, id, &path, place));
                }
            }
        }
        resize(&mut self.buffers, self.plan, Entity::Treatment, self.treatment_rows);
        Ok((errors, ids))
    }

    fn add_computed(&mut self, treatments: usize, request_id: &str) {
        let count = i64::try_from(treatments).expect("treatments are limited");
        let seed = farmhash::fingerprint64(request_id.as_bytes()).cast_signed();
        for (index, input) in self.plan.inputs.iter().enumerate() {
            let value = match input.entity {
                Entity::User | Entity::Treatment | Entity::Joined => continue,
                Entity::TreatmentCount => count,
                Entity::Seed => seed,
            };
            self.buffers[index].push_integer(value);
            self.tally.record(index, ValueOrigin::Computed);
        }
    }

    /// Pads and shapes the tensors.
    pub(super) fn finish(self) -> (Packed, Trace) {
        let Self { plan, buffers, tally, users, single_wanted, .. } = self;
        let kept: SmallVec<[_; 1]> = users.iter().map(UserRows::kept).collect();
        let treatments = kept.iter().copied().max().unwrap_or(0);
        let tensors = finish::tensors(plan, buffers, &kept, treatments);
        let origins = finish::origins(plan, tally.origins.unwrap_or_default(), &kept, treatments);
        let packed = Packed { tensors, users, counts: tally.counts, treatments, single_wanted };
        (packed, Trace { origins, unknown: self.unknown })
    }
}

/// Resizes the buffers of an entity to exactly `rows` rows.
fn resize(buffers: &mut [Buffer], plan: &Plan, entity: Entity, rows: usize) {
    for (buffer, input) in buffers.iter_mut().zip(&plan.inputs) {
        if input.entity == entity {
            buffer.resize(rows * input.width);
        }
    }
}
