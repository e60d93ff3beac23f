//! Leases for the users of a batch, who keep their arms in a canary split.

use std::sync::Arc;

use outrigger_core::Arm;
use outrigger_trials::Split;

use super::{Lease, Servable};

/// The division of a batch whose users have different arms.
#[derive(Debug)]
pub struct Divided {
    /// The lease for the users on the other arm than the chosen user's.
    pub other: Lease,
    /// The arm of each user, in the order of the batch.
    pub arms: Vec<Arm>,
}

impl Lease {
    /// The lease for the users of a batch who have the same arm as the user at position `chosen`,
    /// whose lease this is, and the division of the batch if others have another arm. `keys` returns
    /// the routing keys of all users.
    ///
    /// The outcomes of a batch's users depend on each other, so a trial counts a batch as one
    /// request: that of the chosen user. The latency of that request depends on the number of users
    /// who share its arm, and so on the arm. It is therefore not compared, unless all users have the
    /// same key or none.
    #[must_use]
    pub fn for_batch<'k>(
        mut self,
        chosen: usize,
        keys: impl FnOnce() -> Vec<&'k str>,
    ) -> (Self, Option<Divided>) {
        self.user = chosen;
        let Some(split) = self.split.clone().filter(|_| !self.left_out) else {
            return (self, None);
        };
        let keys = keys();
        let here = self.arm;
        let Some(arms) = split.arms_of_batch(&keys, chosen, here) else { return (self, None) };
        let is_divided = arms.iter().any(|arm| *arm != here);
        let mut on_canary = None;
        if is_divided && here == Arm::Live {
            on_canary = split.begin_on_canary();
            if on_canary.is_none() {
                // Live answers all users.
                (self.counted, self.left_out, self.exposed) = (false, true, None);
                return (self, None);
            }
        }
        self.timed = keys.iter().all(|key| *key == keys[chosen]);
        self.user = arms[..chosen].iter().filter(|arm| **arm == here).count();
        self.expose(&split, &keys, &arms, Some(chosen));
        if !is_divided {
            return (self, None);
        }
        let there = if here == Arm::Live { Arm::Canary } else { Arm::Live };
        let other = self.on(there, &split);
        let part = Some(Arc::clone(&split));
        let mut other = Self { split: part, user: 0, on_canary, sampled: false, ..other };
        other.expose(&split, &keys, &arms, None);
        (self, Some(Divided { other, arms }))
    }

    /// Adds the exposures of the users on this lease's arm, except for the chosen user's, which is
    /// there already.
    fn expose(
        &mut self,
        split: &Split<Servable>,
        keys: &[&str],
        arms: &[Arm],
        chosen: Option<usize>,
    ) {
        let mut own = self.exposed.take().and_then(Arc::into_inner).unwrap_or_default().pop();
        let users = (0..keys.len()).filter(|user| arms[*user] == self.arm).enumerate();
        let exposed = users.filter_map(|(position, user)| {
            let exposure = match chosen == Some(user) {
                true => own.take().map(|(_, exposure)| exposure),
                false => split.expose(keys[user], self.arm),
            };
            Some((position, exposure?))
        });
        let exposed: Vec<_> = exposed.collect();
        self.exposed = (!exposed.is_empty()).then(|| Arc::new(exposed));
    }
}
