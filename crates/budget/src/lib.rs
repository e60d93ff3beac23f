//! A budget of memory for everything that the process holds on somebody's behalf.
//!
//! The budget is divided into accounts. Memory that a caller, a registry or a model makes the
//! process take is charged to an account before it is taken, and refused with a reason if it does
//! not fit. Thus no account can take the memory of another, and the process stays within its limit.

mod account;
mod cgroup;
mod machine;
pub mod metrics;
mod pool;

pub use self::{
    account::{Account, Charge, Lack, Owner},
    cgroup::cgroup_files,
    machine::default_memory,
    pool::Pool,
};

use outrigger_core::Reason;

use self::account::Refusals;

/// One owner may hold this many times what is left for others of the account of waiting requests: all
/// callers of a gateway are one owner, and few are gateways.
const WAITING_SHARES: u64 = 4;

/// The accounts of the process. Clones share them.
///
/// Their sum is at most four fifths of the budget. The rest is for the process itself, for
/// connections, and for what the allocator holds beyond the bytes that are in use.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Requests in flight: their bodies and their tensors.
    pub requests: Account,
    /// Requests that wait at their headers. They have an account of their own, so that they take no
    /// memory from those that they wait for.
    pub waiting: Account,
    /// Bodies that have arrived, and that no request in flight is charged for yet.
    pub unread: Pool,
    /// Outputs of models, and answers until they are sent.
    pub answers: Account,
    /// Packages that are being read: metadata, golden cases, profiles, interfaces of models, and the
    /// models that are loaded into this process.
    pub packages: Account,
    /// Data of versions that are ready for requests: vocabularies, plans, profiles, and the models in
    /// this process.
    pub plans: Account,
    /// Pulls: manifests, and the buffers of downloads and unpacking.
    pub pulls: Account,
}

impl Budget {
    /// Divides `memory`, in bytes, into accounts.
    pub fn new(memory: u64) -> Self {
        let overload = Refusals { busy: Reason::Overloaded, too_large: Reason::TooLarge };
        let package = Refusals { busy: Reason::Overloaded, too_large: Reason::ImageInvalid };
        let plan = Refusals { busy: Reason::MemoryFull, too_large: Reason::MemoryFull };
        Self {
            requests: Account::new("requests", memory / 4, overload),
            waiting: Account::with_shares("waiting", memory / 20, overload, WAITING_SHARES),
            unread: Pool::new("unread", memory / 40 * 3),
            answers: Account::new("answers", memory / 10, overload),
            packages: Account::new("packages", memory / 8, package),
            plans: Account::new("plans", memory / 20 * 3, plan),
            pulls: Account::new("pulls", memory / 20, package),
        }
    }

    /// A budget that nothing exceeds, for a process that holds data for its own user only.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// All accounts; the pool is none.
    pub fn accounts(&self) -> [&Account; 6] {
        let Self { requests, waiting, unread: _, answers, packages, plans, pulls } = self;
        [requests, waiting, answers, packages, plans, pulls]
    }
}

/// The budget of a process that sets none.
impl Default for Budget {
    fn default() -> Self {
        Self::new(default_memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accounts_leave_a_fifth_to_the_process() {
        for memory in [64 << 20, 512 << 20, 1 << 30, 100 << 30] {
            let budget = Budget::new(memory);
            let accounts = budget.accounts().iter().map(|account| account.limit()).sum::<u64>();
            let sum = accounts + budget.unread.limit();
            assert!(sum <= memory / 5 * 4, "{sum} of {memory}");
        }
    }
}
