//! Pieces of batches, and the evidence against their rows.

use std::ops::Range;

use outrigger_core::Moment;
use outrigger_resilience::Class;

use crate::{
    call::{BatchId, CallId, Failure, HostId},
    host::is_answer,
};

/// The failures after which rows are not sent again as they are.
pub(crate) const STRIKES: usize = 2;

/// The failures that may pass are counted by weights. From this sum on they count against the rows of a
/// piece.
const PATIENCE: u32 = 96;
/// The weights of a failure because of load, which callers beside the job may bring about, and of
/// another one.
const LOAD: u32 = 1;
const OTHER: u32 = 6;

/// A piece. Numbers grow in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PieceId(pub(crate) u64);

/// Rows of a batch that are sent together.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) batch: BatchId,
    pub(crate) rows: Range<u32>,
    /// The failures that may be the fault of the rows.
    pub(crate) strikes: Vec<Strike>,
    /// True if the piece is part of a larger one that was found guilty.
    pub(crate) is_convicted: bool,
    /// The hosts that the rows may have ended, as part of a larger piece.
    pub(crate) ended: Vec<HostId>,
    /// The calls in flight; two while one is a hedge.
    pub(crate) flights: Vec<CallId>,
    /// The failures that say nothing about the rows; they set the pause before the next call.
    pub(crate) unprocessed: u32,
    /// The weights of the failures that may pass, of hosts that have succeeded on other rows then.
    passing: u32,
    /// The last such failure, until its host has succeeded.
    doubt: Option<Doubt>,
    pub(crate) attempts: u32,
    /// The hosts that have failed on the rows.
    pub(crate) hosts: Vec<HostId>,
    /// The time at which the first call was sent.
    pub(crate) first: Option<Moment>,
    /// The time at which the last call ended.
    pub(crate) last: Moment,
}

/// A failure that may be the fault of the rows or of the host.
#[derive(Debug, Clone)]
pub(crate) struct Strike {
    pub(crate) host: HostId,
    pub(crate) sent: Moment,
    pub(crate) ended: Moment,
    pub(crate) failure: Failure,
    /// True if the host has succeeded on other rows after it: the rows are at fault.
    pub(crate) is_proven: bool,
}

impl Strike {
    /// True if the host has answered.
    pub(crate) fn is_answer(&self) -> bool {
        is_answer(self.failure.class)
    }
}

/// A failure that may pass.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    host: HostId,
    ended: Moment,
    class: Class,
}

/// The next step for a piece that is not in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is sent again.
    Send,
    /// It waits until its failures are judged.
    Wait,
    /// Its rows are at fault: it is cut in two.
    Cut,
    /// Its only row is at fault.
    Dead,
}

impl Piece {
    pub(crate) fn new(batch: BatchId, rows: Range<u32>) -> Self {
        Self {
            batch,
            rows,
            strikes: Vec::new(),
            is_convicted: false,
            ended: Vec::new(),
            flights: Vec::new(),
            unprocessed: 0,
            passing: 0,
            doubt: None,
            attempts: 0,
            hosts: Vec::new(),
            first: None,
            last: Moment::default(),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.rows.end - self.rows.start
    }

    /// Decides about the piece by its failures. A piece with two is not sent again as a whole; a
    /// part of a guilty piece needs only one, unless it is a single row.
    pub(crate) fn fate(&self) -> Fate {
        if self.len() == 1 {
            return self.fate_of_row();
        }
        // To cut a part of a guilty piece further loses nothing, so an answer is enough.
        let counts =
            |strike: &Strike| strike.is_proven || (self.is_convicted && strike.is_answer());
        let needed = if self.is_convicted { 1 } else { STRIKES };
        match self.strikes.len() {
            strikes if strikes < needed => Fate::Send,
            _ if self.strikes.iter().filter(|strike| counts(strike)).count() < needed => Fate::Wait,
            _ => Fate::Cut,
        }
    }

    /// Decides about a single row. It needs two failures of one kind: a row that was beside one that
    /// has ended the host, and meets a host that answers wrongly, is not at fault.
    fn fate_of_row(&self) -> Fate {
        let of_kind = |is_answer| {
            let strikes = self.strikes.iter().filter(move |s| s.is_answer() == is_answer);
            let proven = strikes.clone().filter(|strike| strike.is_proven).count();
            (strikes.count(), proven)
        };
        match [of_kind(true), of_kind(false)] {
            kinds if kinds.iter().any(|(_, proven)| *proven >= STRIKES) => Fate::Dead,
            kinds if kinds.iter().any(|(strikes, _)| *strikes >= STRIKES) => Fate::Wait,
            _ => Fate::Send,
        }
    }

    /// True if the rows may end a host: a connection broke, or no answer came.
    pub(crate) fn is_fragile(&self) -> bool {
        !self.ended.is_empty() || self.strikes.iter().any(|strike| !strike.is_answer())
    }

    /// The hosts that the rows may have ended.
    fn ended_hosts(&self) -> Vec<HostId> {
        let mut hosts = self.ended.clone();
        let silent = self.strikes.iter().filter(|strike| !strike.is_answer());
        for host in silent.map(|strike| strike.host) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }

    /// The only hosts that may get the rows, because they may have ended two; `None`: all hosts.
    pub(crate) fn confined(&self) -> Option<Vec<HostId>> {
        let is_possible = self.ended.len() + self.strikes.len() >= STRIKES;
        let hosts = if is_possible { self.ended_hosts() } else { Vec::new() };
        (hosts.len() >= STRIKES).then_some(hosts)
    }

    pub(crate) fn has_strike_at(&self, host: HostId) -> bool {
        self.strikes.iter().any(|strike| strike.host == host)
    }

    /// True if a success at the host of `strike`, of a call with other rows, proves that the rows
    /// are at fault. A host that has answered was there at the time, so a success that ended later
    /// than the failed call was sent counts; but a single row is not given up, and a host that has
    /// not answered is not cleared, unless a call that was sent after the failure succeeds.
    pub(crate) fn is_proof(&self, strike: &Strike, (sent, ended): (Moment, Moment)) -> bool {
        if strike.is_answer() && self.len() > 1 {
            ended >= strike.sent
        } else {
            sent >= strike.ended
        }
    }

    /// Cuts the piece in two at this row. Both parts have its history, but the answers that it has
    /// failed with count against neither: they are other calls, and the rest may be at fault.
    pub(crate) fn split_off(&mut self, at: u32) -> Self {
        self.strikes.retain(|strike| !strike.is_answer());
        (self.passing, self.doubt) = (0, None);
        let mut tail = self.clone();
        tail.rows.start = at;
        tail.flights.clear();
        self.rows.end = at;
        tail
    }

    /// True if a failure that may pass counts against the rows: there were too many before.
    pub(crate) fn is_out_of_patience(&self) -> bool {
        self.passing >= PATIENCE
    }

    /// A host has failed on the rows in a way that may pass.
    pub(crate) fn doubted(&mut self, host: HostId, class: Class, ended: Moment) {
        self.doubt = Some(Doubt { host, ended, class });
    }

    /// A call with other rows, which was sent at this time, has succeeded at a host: it was there, and
    /// a failure before counts. Returns true if no doubt about this host is left.
    pub(crate) fn host_succeeded(&mut self, host: HostId, sent: Moment) -> bool {
        match self.doubt.filter(|doubt| doubt.host == host) {
            Some(doubt) if sent >= doubt.ended => {
                let weight = if doubt.class == Class::Overloaded { LOAD } else { OTHER };
                self.passing = self.passing.saturating_add(weight);
                self.doubt = None;
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Makes the parts of a guilty piece: they are tried afresh, but the hosts that it may have
    /// ended are not forgotten.
    pub(crate) fn convict(&mut self) {
        self.ended = self.ended_hosts();
        self.is_convicted = true;
        (self.unprocessed, self.passing, self.doubt) = (0, 0, None);
        self.strikes.clear();
    }

    pub(crate) fn struck(&mut self, strike: Strike) {
        if !self.hosts.contains(&strike.host) {
            self.hosts.push(strike.host);
        }
        self.strikes.push(strike);
    }
}

/// True if a failure of this class may be the fault of the rows.
pub(crate) fn is_strike(class: Class) -> bool {
    class.may_be_the_message() || is_answer(class)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn piece(rows: u32, is_convicted: bool, strikes: &[(Class, bool)]) -> Piece {
        let at = |millis| Moment::at(Duration::from_millis(millis));
        let strike = |(host, (class, is_proven)): (u32, &(Class, bool))| {
            let failure = Failure::new(*class, "failed");
            let (sent, ended) = (at(1), at(5));
            Strike { host: HostId(host), sent, ended, failure, is_proven: *is_proven }
        };
        let strikes = (0..).zip(strikes).map(strike).collect();
        Piece { strikes, is_convicted, ..Piece::new(BatchId(0), 0..rows) }
    }

    const ANSWER: (Class, bool) = (Class::Ambiguous, false);
    const PROVEN: (Class, bool) = (Class::Refused, true);
    const LOST: (Class, bool) = (Class::Lost, true);

    #[test]
    fn rows_are_cut_after_two_proven_failures_and_parts_after_one() {
        let fate = |is_convicted, strikes: &[_]| piece(8, is_convicted, strikes).fate();
        assert_eq!(fate(false, &[PROVEN]), Fate::Send);
        assert_eq!(fate(false, &[PROVEN, ANSWER]), Fate::Wait);
        assert_eq!(fate(false, &[PROVEN, LOST]), Fate::Cut);
        assert_eq!(fate(true, &[]), Fate::Send);
        assert_eq!(fate(true, &[ANSWER]), Fate::Cut);
        assert_eq!(fate(true, &[(Class::Timeout, false)]), Fate::Wait);
    }

    #[test]
    fn a_row_is_dead_after_two_proven_failures_of_one_kind() {
        for is_convicted in [false, true] {
            let fate = |strikes: &[_]| piece(1, is_convicted, strikes).fate();
            assert_eq!(fate(&[PROVEN]), Fate::Send);
            assert_eq!(fate(&[PROVEN, ANSWER]), Fate::Wait);
            assert_eq!(fate(&[PROVEN, LOST]), Fate::Send, "two kinds");
            assert_eq!(fate(&[PROVEN, PROVEN]), Fate::Dead);
            assert_eq!(fate(&[LOST, PROVEN, LOST]), Fate::Dead);
        }
    }

    #[test]
    fn failures_that_may_pass_count_when_there_are_many_of_a_host_that_is_there() {
        let at = |millis| Moment::at(Duration::from_millis(millis));
        let fail = |piece: &mut Piece, class, time: u64| {
            piece.doubted(HostId(0), class, at(time));
            assert!(!piece.host_succeeded(HostId(0), at(time - 1)), "it was sent before");
            assert!(piece.host_succeeded(HostId(1), at(time)), "another host");
            piece.host_succeeded(HostId(0), at(time));
        };
        let needed = |is_convicted, class| {
            let mut piece = piece(8, is_convicted, &[]);
            (1..).find(|time| {
                fail(&mut piece, class, *time);
                piece.is_out_of_patience()
            })
        };
        assert_eq!(needed(false, Class::Unavailable), Some(16));
        assert_eq!(needed(false, Class::Overloaded), Some(96));
        assert_eq!(needed(true, Class::Unavailable), Some(16), "parts of a guilty piece as well");
        let mut away = piece(8, false, &[]);
        (1..100).for_each(|time| away.doubted(HostId(0), Class::Unavailable, at(time)));
        away.host_succeeded(HostId(0), at(100));
        (1..15).for_each(|time| fail(&mut away, Class::Ambiguous, time));
        assert!(!away.is_out_of_patience(), "an outage counts once");
        fail(&mut away, Class::Ambiguous, 15);
        assert!(away.is_out_of_patience());
        let tail = away.split_off(4);
        assert!(!away.is_out_of_patience() && !tail.is_out_of_patience(), "other calls");
        (16..32).for_each(|time| fail(&mut away, Class::Ambiguous, time));
        away.convict();
        assert!(!away.is_out_of_patience(), "its parts are tried afresh");
    }

    #[test]
    fn rows_that_may_have_ended_two_hosts_are_confined_to_them() {
        let silent = |strikes: &[_]| piece(8, false, strikes);
        assert_eq!(silent(&[LOST]).confined(), None);
        assert_eq!(silent(&[LOST, PROVEN]).confined(), None, "one has answered");
        let two = Some(vec![HostId(0), HostId(1)]);
        let mut parent = silent(&[LOST, LOST]);
        assert_eq!(parent.confined(), two);
        parent.convict();
        assert_eq!((parent.confined(), parent.strikes.len()), (two, 0));
    }

    #[test]
    fn parts_inherit_the_failures_without_an_answer() {
        let mut head = piece(8, false, &[PROVEN, LOST]);
        let tail = head.split_off(7);
        assert_eq!((head.rows.clone(), tail.rows.clone()), (0..7, 7..8));
        assert_eq!((head.strikes.len(), tail.strikes.len()), (1, 1));
        assert!(head.is_fragile() && tail.is_fragile());
    }

    #[test]
    fn a_success_is_proof_by_the_kind_of_the_failure() {
        let at = |millis| Moment::at(Duration::from_millis(millis));
        let is_proof = |rows, class, sent, ended| {
            let piece = piece(rows, false, &[(class, false)]);
            piece.is_proof(&piece.strikes[0], (at(sent), at(ended)))
        };
        assert!(is_proof(8, Class::Ambiguous, 0, 3), "the host was well during the call");
        assert!(!is_proof(8, Class::Ambiguous, 0, 0), "before it is too early");
        assert!(!is_proof(8, Class::Timeout, 3, 9) && is_proof(8, Class::Timeout, 5, 9));
        assert!(!is_proof(1, Class::Ambiguous, 3, 9) && is_proof(1, Class::Ambiguous, 5, 9));
    }
}
