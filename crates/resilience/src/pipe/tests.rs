use super::*;
use crate::Class;

/// A host with slots, whose calls are always as many as the limit says. All times in
/// milliseconds, without jitter.
struct Host {
    pipe: Pipe,
    slots: usize,
    service: u64,
    rows: u64,
    /// The ends of the calls that it has, in order, with the times of sending and the calls
    /// in flight then.
    calls: VecDeque<(u64, u64, usize)>,
    /// The time from which on each slot is free.
    free: Vec<u64>,
    now: u64,
}

impl Host {
    fn new(slots: usize) -> Self {
        let (pipe, calls, free) = (Pipe::new(2, 1000), VecDeque::new(), vec![0; slots]);
        Self { pipe, slots, service: 100, rows: 10, calls, free, now: 0 }
    }

    /// Answers this many calls. Returns the mean of the calls in flight.
    fn run(&mut self, answers: usize) -> f64 {
        let mut sum = 0;
        for _ in 0..answers {
            while self.calls.len() < self.pipe.limit() {
                self.free.resize(self.slots, self.now);
                let slot = self.free.iter_mut().min().expect("a slot");
                let end = (*slot).max(self.now) + self.service;
                *slot = end;
                let in_flight = self.calls.len() + 1;
                let at = self.calls.partition_point(|call| call.0 <= end);
                self.calls.insert(at, (end, self.now, in_flight));
            }
            let (end, sent, in_flight) = self.calls.pop_front().expect("a call");
            sum += self.calls.len() + 1;
            self.now = end;
            let at = |millis| Moment::at(Duration::from_millis(millis));
            let (sent, ended) = (at(sent), at(end));
            self.pipe.ended(&Sample { sent, ended, rows: self.rows, in_flight, failure: None });
        }
        sum as f64 / answers as f64
    }
}

#[test]
fn the_limit_is_the_slots_and_a_quarter() {
    for slots in [1, 2, 8, 100] {
        let mut host = Host::new(slots);
        host.run(50 * slots + 500);
        let limit = host.run(2000) / slots as f64;
        assert!((0.95..=1.5).contains(&limit), "{slots} slots: {limit}");
    }
}

#[test]
fn the_limit_follows_the_slots() {
    let mut host = Host::new(8);
    host.run(1000);
    for slots in [4, 8, 16, 2] {
        host.slots = slots;
        host.run(1500);
        let limit = host.run(1500) / slots as f64;
        assert!((0.95..=1.5).contains(&limit), "{slots} slots: {limit}");
    }
}

#[test]
fn a_slower_service_does_not_lower_the_limit_for_long() {
    let mut host = Host::new(8);
    host.run(1000);
    for service in [400, 50] {
        host.service = service;
        host.run(1500);
        let limit = host.run(1500) / 8.0;
        assert!((0.95..=1.5).contains(&limit), "{service} ms: {limit}");
    }
}

#[test]
fn another_size_of_calls_is_measured_anew() {
    let mut host = Host::new(8);
    host.run(1000);
    for (rows, service) in [(1, 20), (100, 800)] {
        (host.rows, host.service) = (rows, service);
        host.run(1500);
        let limit = host.run(1500) / 8.0;
        assert!((0.95..=1.5).contains(&limit), "{rows} rows: {limit}");
    }
}

#[test]
fn the_limit_grows_only_where_it_was_reached() {
    let mut pipe = Pipe::new(4, 100);
    let at = |millis| Moment::at(Duration::from_millis(millis));
    for call in 0..1000 {
        let (sent, ended) = (at(10 * call), at(10 * call + 9));
        pipe.ended(&Sample { sent, ended, rows: 1, in_flight: 1, failure: None });
    }
    assert_eq!(pipe.limit(), 4);
    assert!(pipe.is_starting());
    let failure = Some(Class::Ambiguous);
    pipe.ended(&Sample { sent: at(0), ended: at(1), rows: 1, in_flight: 4, failure });
    assert_eq!(pipe.limit(), 4);
}
