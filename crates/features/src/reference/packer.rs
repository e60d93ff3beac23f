//! The packer of the reference implementation: turns rows into tensors.

use outrigger_core::{Failure, Reason};
use outrigger_proto::outrigger::v1::{TreatmentError, ValueOrigin};

use super::{plain::Plain, view::View};
use crate::{
    call::Trace,
    column::{Buffer, Problem},
    faults::Faults,
    finish,
    metadata::Entity,
    options::{Options, any_single},
    packed::{FeatureCounts, Ids, Packed, UserRows},
    place::Place,
    plan::{InputPlan, Plan},
    seed::seed,
};

/// The maximum number of characters of a treatment's id in a message.
const QUOTED: usize = 80;

/// Appends the rows of one user after the other; pads at the end, when T is known.
pub(super) struct Packer<'p> {
    plan: &'p Plan,
    /// For each input, its elements.
    buffers: Vec<Buffer>,
    /// For each input, the origin of every feature of every row.
    origins: Option<Vec<Vec<i32>>>,
    users: Vec<UserRows>,
    /// The number of treatments of all users so far.
    treatment_rows: usize,
    unknown: Vec<Vec<String>>,
    counts: FeatureCounts,
    single_wanted: bool,
    pub(super) faults: Faults,
}

/// A feature that could not be packed, with the reason.
struct BadFeature<'p> {
    feature: &'p str,
    problem: Problem,
}

impl<'p> Packer<'p> {
    /// A packer with room for users of `counts` treatments each.
    pub(super) fn new(
        plan: &'p Plan,
        traced: bool,
        counts: impl ExactSizeIterator<Item = usize> + Clone,
    ) -> Self {
        let buffer = |input: &InputPlan| {
            let rows = match input.entity {
                Entity::Treatment => counts.clone().sum(),
                _ => counts.len(),
            };
            input.buffer(rows)
        };
        Self {
            plan,
            buffers: plan.inputs.iter().map(buffer).collect(),
            origins: traced.then(|| vec![Vec::new(); plan.inputs.len()]),
            users: Vec::with_capacity(counts.len()),
            treatment_rows: 0,
            unknown: Vec::new(),
            counts: FeatureCounts::default(),
            single_wanted: false,
            faults: Faults::default(),
        }
    }

    /// Appends one user and its treatments, and collects their faults.
    pub(super) fn add(
        &mut self,
        request_id: &str,
        view: View<'_>,
        options: Options,
        place: &Place,
    ) {
        let bad = self.add_row(Entity::User, &view.user).err().into_iter().flatten();
        self.faults.extend(bad.map(|bad| {
            let path = format!("user[{:?}]", bad.feature);
            place.failure(bad.problem.reason, path, bad.problem.message)
        }));
        let (kept, errors) = self.add_treatments(&view, options.skip, place);
        if !self.faults.is_empty() {
            return;
        }
        self.add_computed(kept.len(), request_id);
        self.counts.unknown += view.unknown.count;
        self.unknown.push(view.unknown.names.iter().flatten().cloned().collect());
        self.single_wanted |= any_single(&options.outputs, self.plan);
        let ids: Vec<_> = kept.iter().map(|index| view.id(*index as usize)).collect();
        let user = UserRows {
            request_id: request_id.into(),
            requested: view.count,
            ids: options.treatment_ids.then(|| Ids::copied(&ids)),
            errors,
            skip: options.skip,
            top_k: options.top_k,
            outputs: options.outputs,
        };
        assert_eq!(user.positions(), kept, "a treatment is either packed or left out");
        self.users.push(user);
    }

    fn add_treatments(
        &mut self,
        view: &View<'_>,
        skip: bool,
        place: &Place,
    ) -> (Vec<u32>, Vec<TreatmentError>) {
        let (mut kept, mut errors) = (Vec::with_capacity(view.count), Vec::new());
        for index in 0..view.count {
            let position = u32::try_from(index).expect("treatments are limited");
            match self.add_row(Entity::Treatment, view.treatment(index)) {
                Ok(()) => kept.push(position),
                Err(bad) if skip => {
                    let first = bad.into_iter().next();
                    errors.extend(first.map(|bad| left_out(position, view.id(index), bad)));
                }
                Err(bad) => {
                    self.faults.extend(bad.iter().map(|bad| refusal(view, index, bad, place)));
                }
            }
        }
        (kept, errors)
    }

    /// Appends one row of an entity to all its inputs, or to none.
    fn add_row(
        &mut self,
        entity: Entity,
        values: &[Option<Plain<'_>>],
    ) -> Result<(), Vec<BadFeature<'p>>> {
        let counts = self.counts;
        let bad = self.write_row(entity, values);
        if bad.is_empty() {
            self.treatment_rows += usize::from(entity == Entity::Treatment);
            return Ok(());
        }
        self.drop_partial_row(entity);
        self.counts = counts;
        Err(bad)
    }

    /// Removes the elements that a failed row has appended.
    fn drop_partial_row(&mut self, entity: Entity) {
        let rows = match entity {
            Entity::Treatment => self.treatment_rows,
            _ => self.users.len(),
        };
        let plan = self.plan;
        for (index, input) in plan.inputs.iter().enumerate() {
            if input.entity != entity {
                continue;
            }
            self.buffers[index].resize(rows * input.width);
            if let Some(origins) = &mut self.origins {
                origins[index].truncate(rows * input.columns.len());
            }
        }
    }

    /// Appends the elements of a row; returns the features that cannot be packed.
    fn write_row(&mut self, entity: Entity, values: &[Option<Plain<'_>>]) -> Vec<BadFeature<'p>> {
        let (plan, mut bad) = (self.plan, Vec::new());
        let mut values = values.iter();
        for (index, input) in plan.inputs.iter().enumerate() {
            if input.entity != entity {
                continue;
            }
            for column in &input.columns {
                let value = values.next().expect("a row has a value for every column");
                match column.write(value.as_ref(), &mut self.buffers[index]) {
                    Ok(origin) => self.record(index, origin),
                    Err(problem) => bad.push(BadFeature { feature: &column.feature, problem }),
                }
            }
        }
        bad
    }

    fn record(&mut self, input: usize, origin: ValueOrigin) {
        self.counts.add(origin);
        if let Some(origins) = &mut self.origins {
            origins[input].push(origin.into());
        }
    }

    fn add_computed(&mut self, treatments: usize, request_id: &str) {
        let count = i64::try_from(treatments).expect("treatments are limited");
        let plan = self.plan;
        for (index, input) in plan.inputs.iter().enumerate() {
            let value = match input.entity {
                Entity::User | Entity::Treatment | Entity::Joined => continue,
                Entity::TreatmentCount => count,
                Entity::Seed => seed(request_id),
            };
            self.buffers[index].push_integer(value);
            self.record(index, ValueOrigin::Computed);
        }
    }

    /// Pads and shapes the tensors.
    pub(super) fn finish(self) -> (Packed, Trace) {
        let kept: Vec<_> = self.users.iter().map(UserRows::kept).collect();
        let treatments = kept.iter().copied().max().unwrap_or(0);
        let tensors = finish::tensors(self.plan, self.buffers, &kept, treatments);
        let origins = self.origins.unwrap_or_default();
        let origins = finish::origins(self.plan, origins, &kept, treatments);
        let (counts, single_wanted) = (self.counts, self.single_wanted);
        let packed =
            Packed { tensors, users: self.users, counts, treatments, single_wanted, raw: None };
        (packed, Trace { origins, unknown: self.unknown })
    }
}

fn refusal(view: &View<'_>, index: usize, bad: &BadFeature<'_>, place: &Place) -> Failure {
    let id: String = view.id(index).chars().take(QUOTED).collect();
    let id = if id.is_empty() { String::new() } else { format!(", id {id:?}") };
    let message = format!("{} (treatment {index}{id})", bad.problem.message);
    place.failure(bad.problem.reason, view.treatment_path(index, bad.feature), message)
}

fn left_out(index: u32, id: &str, bad: BadFeature<'_>) -> TreatmentError {
    let reason: Reason = bad.problem.reason;
    TreatmentError {
        index,
        id: id.to_owned(),
        reason: reason.as_str().to_owned(),
        message: bad.problem.message,
        feature: bad.feature.to_owned(),
    }
}
