//! The tensors of a call while its rows are written, in whichever form its requests come.

use outrigger_proto::outrigger::v1::ValueOrigin;
use smallvec::SmallVec;

use crate::{
    call::Trace,
    column::Buffer,
    finish,
    metadata::Entity,
    options::any_single,
    packed::{Packed, UserRows},
    plan::{InputPlan, Plan},
    seed::seed,
    tally::Tally,
};

/// Rows of one user after the other; padded at the end, when T is known.
#[derive(Debug)]
pub(crate) struct Tensors<'p> {
    plan: &'p Plan,
    /// For each input, its elements.
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) tally: Tally,
    users: Vec<UserRows>,
    /// The number of treatments of all users so far.
    pub(crate) treatment_rows: usize,
    single_wanted: bool,
}

impl<'p> Tensors<'p> {
    /// Creates tensors with room for `users` users and `treatments` treatments in total.
    pub(crate) fn new(plan: &'p Plan, traced: bool, users: usize, treatments: usize) -> Self {
        let buffer = |input: &InputPlan| {
            let rows = match input.entity {
                Entity::Treatment => treatments,
                _ => users,
            };
            input.buffer(rows)
        };
        Self {
            plan,
            buffers: plan.inputs.iter().map(buffer).collect(),
            tally: Tally::new(plan.inputs.len(), traced),
            users: Vec::with_capacity(users),
            treatment_rows: 0,
            single_wanted: false,
        }
    }

    /// Makes room for the row of the next user; returns its index.
    pub(crate) fn begin_user(&mut self) -> usize {
        let row = self.users.len();
        self.resize(Entity::User, row + 1);
        row
    }

    /// Makes room for `count` treatments after those written so far.
    pub(crate) fn make_room(&mut self, count: usize) {
        self.resize(Entity::Treatment, self.treatment_rows + count);
    }

    /// Removes the room for treatments that was not used.
    pub(crate) fn trim(&mut self) {
        self.resize(Entity::Treatment, self.treatment_rows);
    }

    /// Resizes the buffers of an entity to exactly `rows` rows.
    fn resize(&mut self, entity: Entity, rows: usize) {
        for (buffer, input) in self.buffers.iter_mut().zip(&self.plan.inputs) {
            if input.entity == entity {
                buffer.resize(rows * input.width);
            }
        }
    }

    /// Completes a user whose rows have been written.
    pub(crate) fn add_user(&mut self, user: UserRows) {
        self.single_wanted |= any_single(&user.outputs, self.plan);
        self.add_computed(user.kept(), &user.request_id);
        self.users.push(user);
    }

    fn add_computed(&mut self, treatments: usize, request_id: &str) {
        let count = i64::try_from(treatments).expect("treatments are limited");
        for (index, input) in self.plan.inputs.iter().enumerate() {
            let value = match input.entity {
                Entity::User | Entity::Treatment | Entity::Joined => continue,
                Entity::TreatmentCount => count,
                Entity::Seed => seed(request_id),
            };
            self.buffers[index].push_integer(value);
            self.tally.record(index, ValueOrigin::Computed);
        }
    }

    /// Pads and shapes the tensors; `unknown` are the names of unknown features by user.
    pub(crate) fn finish(self, unknown: Vec<Vec<String>>) -> (Packed, Trace) {
        let Self { plan, buffers, tally, users, single_wanted, .. } = self;
        let kept: SmallVec<[_; 1]> = users.iter().map(UserRows::kept).collect();
        let treatments = kept.iter().copied().max().unwrap_or(0);
        let tensors = finish::tensors(plan, buffers, &kept, treatments);
        let origins = finish::origins(plan, tally.origins.unwrap_or_default(), &kept, treatments);
        let packed =
            Packed { tensors, users, counts: tally.counts, treatments, single_wanted, raw: None };
        (packed, Trace { origins, unknown })
    }
}
