//! Any order of any ends of calls.

use std::{collections::BTreeMap, time::Duration};

use outrigger_core::Moment;
use outrigger_dispatch::{
    BatchId, Call, Dispatcher, End, Failure, HostId, Limits, Purpose, Settings, Settled,
};
use outrigger_resilience::{Class, Cut};
use proptest::prelude::*;

/// A step of a driver that has no plan.
#[derive(Debug, Clone)]
enum Step {
    Add(u32),
    Call,
    /// The end of one of the calls in flight.
    End(usize, Option<Class>),
    Withdraw(usize),
    Oversize(usize),
    Hold(Option<u64>),
    Pass(u64),
    Hosts(u8),
    Limits(usize),
    Pause(bool),
}

fn class() -> impl Strategy<Value = Class> {
    let cut = Cut { rows: Some(3), bytes: None };
    prop_oneof![
        Just(Class::Unavailable),
        Just(Class::Overloaded),
        Just(Class::Lost),
        Just(Class::Timeout),
        Just(Class::TooLarge(cut)),
        Just(Class::TooLarge(Cut::default())),
        Just(Class::Refused),
        Just(Class::Ambiguous),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0_u32..20).prop_map(Step::Add),
        6 => Just(Step::Call),
        3 => any::<usize>().prop_map(|which| Step::End(which, None)),
        4 => (any::<usize>(), class()).prop_map(|(which, class)| Step::End(which, Some(class))),
        1 => any::<usize>().prop_map(Step::Withdraw),
        1 => any::<usize>().prop_map(Step::Oversize),
        1 => any::<Option<u64>>().prop_map(|last| Step::Hold(last.map(|it| it % 8))),
        3 => (0_u64..3000).prop_map(Step::Pass),
        1 => any::<u8>().prop_map(Step::Hosts),
        1 => (1_usize..5).prop_map(Step::Limits),
        1 => any::<bool>().prop_map(Step::Pause),
    ]
}

struct Driver {
    dispatcher: Dispatcher,
    now: Moment,
    flights: Vec<Call>,
    /// The fates of the rows of each batch: scored or dead.
    ledger: BTreeMap<BatchId, Vec<Option<bool>>>,
    max_in_flight: usize,
}

impl Driver {
    fn new(seed: u64) -> Self {
        let hosts = [0, 1, 2].map(HostId);
        // The driver does not stop.
        let settings = Settings { patience: Duration::from_secs(1 << 40), ..Settings::default() };
        let max_in_flight = settings.limits.max_in_flight;
        let dispatcher = Dispatcher::new(settings, hosts, (seed, Moment::default()));
        let (now, flights, ledger) = (Moment::default(), Vec::new(), BTreeMap::new());
        Self { dispatcher, now, flights, ledger, max_in_flight }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Add(rows) => {
                let batch = BatchId(self.ledger.len() as u64);
                self.ledger.insert(batch, vec![None; rows as usize]);
                self.dispatcher.add(batch, rows);
            }
            Step::Call => _ = self.call(),
            Step::End(which, class) => {
                let end = |class| End::Failed(Failure::new(class, "failed"));
                self.end(which, class.map_or(End::Scored, end));
            }
            Step::Withdraw(which) => self.end(which, End::Withdrawn),
            Step::Oversize(which) => self.end(which, End::Oversized),
            Step::Hold(last) => self.dispatcher.hold_after(last.map(BatchId)),
            Step::Pass(millis) => self.now = self.now + Duration::from_millis(millis),
            Step::Hosts(bits) => {
                let hosts = (0..8).filter(|bit| bits & (1 << bit) != 0).map(HostId);
                let hosts: Vec<_> = hosts.collect();
                let settled = self.dispatcher.set_hosts(&hosts, self.now);
                self.settle(settled);
            }
            Step::Limits(max_in_flight) => {
                self.max_in_flight = max_in_flight;
                self.dispatcher.set_limits(Limits { max_in_flight, rows_per_second: None });
            }
            Step::Pause(true) => self.dispatcher.pause(),
            Step::Pause(false) => self.dispatcher.resume(),
        }
    }

    fn call(&mut self) -> bool {
        let Some(call) = self.dispatcher.next(self.now) else { return false };
        if call.purpose != Purpose::Check {
            let fates = &self.ledger[&call.batch];
            assert!(!call.rows.is_empty());
            assert!(call.rows.clone().all(|row| fates[row as usize].is_none()), "{call:?}");
            let same = |other: &&Call| {
                other.purpose != Purpose::Check
                    && other.batch == call.batch
                    && other.rows.start < call.rows.end
                    && call.rows.start < other.rows.end
            };
            let beside: Vec<_> = self.flights.iter().filter(same).collect();
            let is_hedge = call.purpose == Purpose::Hedge;
            assert!(beside.len() <= usize::from(is_hedge), "{call:?} {beside:?}");
            assert!(beside.iter().all(|other| other.host != call.host));
        }
        let at_host = self.flights.iter().filter(|other| other.host == call.host).count();
        assert!(at_host < self.max_in_flight || call.is_probe, "{call:?}");
        self.flights.push(call);
        true
    }

    fn end(&mut self, which: usize, end: End) {
        if self.flights.is_empty() {
            return;
        }
        let call = self.flights.swap_remove(which % self.flights.len());
        let settled = self.dispatcher.ended(call.id, end.clone(), self.now);
        if end == End::Scored && call.purpose != Purpose::Check {
            let scored = settled.scored.as_ref().expect("the rows are scored");
            assert_eq!((scored.batch, &scored.rows), (call.batch, &call.rows));
        } else {
            assert_eq!(settled.scored, None);
        }
        self.settle(settled);
    }

    fn settle(&mut self, settled: Settled) {
        self.flights.retain(|call| !settled.cancel.contains(&call.id));
        let dead = settled.dead.iter().map(|dead| (dead.batch, dead.row..dead.row + 1, false));
        let scored = settled.scored.iter().map(|s| (s.batch, s.rows.clone(), true));
        for (batch, rows, is_scored) in dead.chain(scored) {
            for row in rows {
                let fate = &mut self.ledger.get_mut(&batch).expect("a batch")[row as usize];
                assert_eq!(*fate, None, "row {row} of {batch:?} is settled twice");
                *fate = Some(is_scored);
            }
        }
    }

    /// Lets all calls succeed until nothing is left; one batch after the other if `is_narrow`.
    fn finish(&mut self, is_narrow: bool) {
        self.step(Step::Hosts(0b111));
        self.step(Step::Pause(false));
        self.step(Step::Hold(None));
        while !self.dispatcher.is_idle() {
            if is_narrow {
                // A caller without memory goes on with its first batch.
                let is_open = |(_, rows): &(&BatchId, &Vec<_>)| rows.iter().any(Option::is_none);
                let first = self.ledger.iter().find(is_open).map(|(batch, _)| *batch);
                self.dispatcher.hold_after(first);
            }
            while self.call() {}
            if self.flights.is_empty() {
                let wake = self.dispatcher.wake_at(self.now);
                self.now = wake.unwrap_or_else(|| panic!("standstill: {:#?}", self.dispatcher));
            } else {
                self.now = self.now + Duration::from_millis(1);
                self.end(0, End::Scored);
            }
        }
        let mut fates = self.ledger.values().flatten();
        assert!(fates.all(Option::is_some), "a row is forgotten");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_row_is_settled_once(steps in prop::collection::vec(step(), 0..400), seed in any::<u64>()) {
        let mut driver = Driver::new(seed);
        steps.into_iter().for_each(|step| driver.step(step));
        driver.finish(seed % 2 == 0);
    }
}
