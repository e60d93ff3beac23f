//! Counts of the ends of requests and of dead rows, for people and metrics.

use std::collections::{BTreeMap, HashMap};

use outrigger_dispatch::{End, Failure, HostId, Reason};
use outrigger_resilience::Class;

use crate::progress::LastFailure;

/// The most characters of a message that is kept.
const MOST: usize = 300;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The ends of requests by host, for the hosts that the job has now.
    hosts: HashMap<HostId, Ends>,
    reasons: BTreeMap<&'static str, u64>,
}

/// The ends of the requests at one host.
#[derive(Debug, Default)]
struct Ends {
    counts: BTreeMap<&'static str, u64>,
    last_failure: Option<LastFailure>,
}

impl Tally {
    /// Counts the end of a request.
    pub(super) fn ended(&mut self, host: HostId, end: &End) {
        let ends = self.hosts.entry(host).or_default();
        let name = match end {
            End::Failed(failure) => {
                let message = failure.message.chars().take(MOST).collect();
                ends.last_failure = Some(LastFailure { time: crate::time::now(), message });
                failed(failure)
            }
            End::Scored => "scored",
            End::Withdrawn | End::Oversized => "withdrawn",
        };
        *ends.counts.entry(name).or_default() += 1;
    }

    /// Counts a request that was cancelled because its rows are settled.
    pub(super) fn withdrawn(&mut self, host: HostId) {
        *self.hosts.entry(host).or_default().counts.entry("withdrawn").or_default() += 1;
    }

    /// Counts a dead row.
    pub(super) fn dead(&mut self, reason: Reason) {
        *self.reasons.entry(reason.name()).or_default() += 1;
    }

    /// Forgets all other hosts.
    pub(super) fn keep(&mut self, hosts: &[HostId]) {
        self.hosts.retain(|host, _| hosts.contains(host));
    }

    /// The ends of the requests at a host, and its last failure.
    pub(super) fn of(&self, host: HostId) -> (BTreeMap<String, u64>, Option<LastFailure>) {
        let Some(ends) = self.hosts.get(&host) else { return Default::default() };
        (named(&ends.counts), ends.last_failure.clone())
    }

    /// The dead rows by reason.
    pub(super) fn reasons(&self) -> BTreeMap<String, u64> {
        named(&self.reasons)
    }
}

fn named(counts: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// The name of a failure: one of [`ENDS`](crate::progress::ENDS).
fn failed(failure: &Failure) -> &'static str {
    match failure.class {
        _ if failure.is_bad_reply => "bad_reply",
        Class::Unavailable => "unavailable",
        Class::Overloaded => "overloaded",
        Class::Lost => "lost",
        Class::Timeout => "timeout",
        Class::TooLarge(_) => "too_large",
        Class::Refused => "refused",
        Class::Ambiguous => "ambiguous",
    }
}

#[cfg(test)]
mod tests {
    use outrigger_resilience::Cut;

    use super::*;
    use crate::progress::ENDS;

    #[test]
    fn every_end_has_a_name_and_is_counted_for_its_host() {
        let mut tally = Tally::default();
        let [one, two] = [HostId(1), HostId(2)];
        let classes = [
            Class::Unavailable,
            Class::Overloaded,
            Class::Lost,
            Class::Timeout,
            Class::TooLarge(Cut::default()),
            Class::Refused,
            Class::Ambiguous,
        ];
        for class in classes {
            tally.ended(one, &End::Failed(Failure::new(class, "x".repeat(MOST + 1))));
        }
        let bad =
            Failure { is_bad_reply: true, ..Failure::new(Class::Ambiguous, "bad".to_owned()) };
        tally.ended(one, &End::Failed(bad));
        assert_eq!(tally.of(one).1.expect("a failure").message, "bad");
        tally.ended(one, &End::Scored);
        tally.withdrawn(one);
        let ends = tally.of(one).0;
        assert!(ends.keys().all(|end| ENDS.contains(&end.as_str())), "{ends:?}");
        assert_eq!(ends.len(), ENDS.len());
        tally.ended(two, &End::Scored);
        tally.keep(&[two]);
        assert!(tally.of(one).0.is_empty());
        assert_eq!(tally.of(two).0, [("scored".to_owned(), 1)].into());
    }

    #[test]
    fn dead_rows_are_counted_by_reason() {
        let mut tally = Tally::default();
        for reason in [Reason::Timeout, Reason::TooLarge, Reason::Timeout] {
            tally.dead(reason);
        }
        let expected = [("timeout".to_owned(), 2), ("too_large".to_owned(), 1)];
        assert_eq!(tally.reasons(), expected.into());
    }
}
