//! Groups that are sent to a predictor together.

use outrigger_score::Scorer;

use crate::group::Group;

/// The most treatments of a call, padding included, unless a single request has more.
const TREATMENTS: usize = 5_000;
/// The most rows of a batch, where more do not come from one request.
const MAX_ROWS: usize = 10_000;

/// The requests that a predictor takes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// The most requests.
    pub requests: usize,
    /// The most treatments of all requests, padding included.
    pub treatments: usize,
    /// True if requests with different numbers of treatments may be sent together.
    pub mixed: bool,
}

impl Batching {
    /// The requests that share a call of the engine. Those with different numbers of treatments are
    /// padded. A model without a count of treatments cannot tell padding from treatments, so it
    /// gets none: its scores could depend on the requests that share a call.
    pub fn of(scorer: &Scorer) -> Self {
        let plan = &scorer.plan;
        Self {
            requests: scorer.limits().max_users,
            treatments: TREATMENTS,
            mixed: plan.takes_treatment_count() || plan.metadata().is_joined(),
        }
    }
}

/// Groups in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) groups: Vec<Group>,
    /// The part of the file that has been read with these groups, from 0 to 1.
    pub(crate) fraction: f64,
    requests: usize,
    bytes: usize,
    rows: usize,
    /// The most treatments of a request.
    treatments: usize,
}

impl Batch {
    /// True if the group may be added to a batch of at most `max_bytes`; one that is larger is a
    /// batch of its own.
    pub(crate) fn has_room(&self, group: &Group, batching: &Batching, max_bytes: usize) -> bool {
        if self.rows + group.rows.len() > MAX_ROWS || self.bytes + group.bytes() > max_bytes {
            return self.groups.is_empty();
        }
        if self.requests == 0 || !group.is_sent() {
            return true;
        }
        let requests = self.requests + 1;
        let padded = requests * self.treatments.max(group.treatments);
        requests <= batching.requests
            && padded <= batching.treatments
            && (batching.mixed || self.treatments == group.treatments)
    }

    pub(crate) fn add(&mut self, group: Group) {
        self.requests += usize::from(group.is_sent());
        self.bytes += group.bytes();
        self.rows += group.rows.len();
        self.treatments = self.treatments.max(group.treatments);
        self.groups.push(group);
    }

    /// The encoded requests.
    pub(crate) fn requests(&self) -> Vec<&[u8]> {
        let sent = self.groups.iter().filter(|group| group.is_sent());
        sent.map(|group| group.request.as_slice()).collect()
    }
}

#[cfg(test)]
mod tests {
    use outrigger_tables::Cell;

    use super::*;
    use crate::group::GroupRow;

    const MAX_BYTES: usize = 1 << 20;

    fn group(treatments: usize, bytes: usize) -> Group {
        let rows = (0..treatments).map(|_| GroupRow::default()).collect();
        Group { request: vec![0; bytes], treatments, rows }
    }

    /// The numbers of requests of the batches of these groups.
    fn batches(batching: Batching, groups: impl IntoIterator<Item = Group>) -> Vec<usize> {
        let (mut batches, mut batch) = (Vec::new(), Batch::default());
        for group in groups {
            if !batch.has_room(&group, &batching, MAX_BYTES) {
                batches.push(std::mem::take(&mut batch).requests().len());
            }
            batch.add(group);
        }
        batches.push(batch.requests().len());
        batches
    }

    #[test]
    fn a_batch_has_limits() {
        let batching = Batching { requests: 3, treatments: 8, mixed: true };
        let equal = || (0..5).map(|_| group(2, 1));
        assert_eq!(batches(batching, equal()), [3, 2]);
        let padded = [group(1, 1), group(5, 1), group(2, 1)];
        assert_eq!(batches(batching, padded), [1, 1, 1], "2 x 5 treatments are more than 8");
        let large = [group(1, MAX_BYTES + 1), group(1, 1), group(1, 1)];
        assert_eq!(batches(batching, large), [1, 2]);
        assert_eq!(batches(batching, [group(9, 1), group(9, 1)]), [1, 1]);
    }

    #[test]
    fn a_model_that_sees_the_padding_gets_none() {
        let batching = Batching { requests: 3, treatments: 100, mixed: false };
        let groups = [group(1, 1), group(2, 1), group(2, 1), group(0, 0), group(2, 1)];
        assert_eq!(batches(batching, groups), [1, 3]);
    }

    #[test]
    fn rows_that_are_not_sent_are_limited_too() {
        let batching = Batching { requests: 3, treatments: 100, mixed: false };
        let failed = || group(MAX_ROWS, 0);
        let mut batch = Batch::default();
        assert!(batch.has_room(&failed(), &batching, MAX_BYTES));
        batch.add(failed());
        assert!(!batch.has_room(&failed(), &batching, MAX_BYTES));
        let long = || {
            let row =
                GroupRow { treatment: Cell::Text("t".repeat(MAX_BYTES)), ..GroupRow::default() };
            Group { rows: vec![row], ..Group::default() }
        };
        let mut batch = Batch::default();
        assert!(batch.has_room(&long(), &batching, MAX_BYTES));
        batch.add(long());
        assert!(!batch.has_room(&long(), &batching, MAX_BYTES));
    }
}
