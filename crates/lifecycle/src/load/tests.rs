//! Tests with a simulated engine of four workers, each of which takes 10 ms for a request: 400 a
//! second.

use std::collections::{BTreeMap, VecDeque};

use super::*;

const WORKERS: usize = 4;
const SERVICE: Duration = Duration::from_millis(10);
/// The time of a play, and the time at its beginning that is not reported.
const PLAY: Duration = Duration::from_secs(10);
const BEFORE: Duration = Duration::from_secs(2);

/// Requests of one caller, at random times.
#[derive(Clone, Copy)]
struct Source {
    caller: u64,
    /// The mean number a second.
    rate: f64,
    deadline: Duration,
}

fn source(caller: u64, rate: u32, deadline: u64) -> Source {
    Source { caller, rate: rate.into(), deadline: Duration::from_millis(deadline) }
}

/// The outcomes of a caller's requests.
#[derive(Debug, Default)]
struct Outcomes {
    /// The durations of answers within their deadlines.
    took: Vec<Duration>,
    refused: usize,
    late: usize,
}

impl Outcomes {
    fn p99(&self) -> Duration {
        let mut all = self.took.clone();
        all.sort_unstable();
        all[all.len() * 99 / 100]
    }
}

struct Request {
    caller: u64,
    began: Instant,
    deadline: Instant,
    running: Option<Running>,
}

/// The engine and what became of its requests. It works also for callers that have given up, as
/// TensorFlow Serving does.
struct Engine {
    workers: Vec<(Instant, Option<Request>)>,
    queue: VecDeque<Request>,
    outcomes: BTreeMap<u64, Outcomes>,
    reported: Instant,
}

impl Engine {
    fn new(start: Instant) -> Self {
        let workers = (0..WORKERS).map(|_| (start, None)).collect();
        let (queue, outcomes) = (VecDeque::new(), BTreeMap::new());
        Self { workers, queue, outcomes, reported: start + BEFORE }
    }

    fn outcomes(&mut self, request: &Request) -> Option<&mut Outcomes> {
        let is_reported = request.began >= self.reported;
        is_reported.then(|| self.outcomes.entry(request.caller).or_default())
    }

    fn work_until(&mut self, now: Instant) {
        loop {
            let is_next =
                |worker: &usize| self.workers[*worker].1.is_some() || !self.queue.is_empty();
            let first = (0..WORKERS).filter(is_next).min_by_key(|it| self.workers[*it].0);
            let Some(first) = first else { return };
            let (at, request) = &mut self.workers[first];
            let (at, request) = (*at, request.take_if(|_| *at <= now));
            if let Some(request) = request {
                self.done(at, request);
            } else if at > now || self.queue.is_empty() {
                return;
            }
            if let Some(next) = self.queue.pop_front() {
                self.workers[first] = (at.max(next.began) + SERVICE, Some(next));
            }
        }
    }

    fn done(&mut self, at: Instant, mut request: Request) {
        let is_late = at > request.deadline;
        if let Some(running) = request.running.take().filter(|_| !is_late) {
            running.end(micros(at), true);
        }
        let took = at - request.began;
        match self.outcomes(&request) {
            Some(outcomes) if is_late => outcomes.late += 1,
            Some(outcomes) => outcomes.took.push(took),
            None => {}
        }
    }

    /// Callers give up at their deadlines; the engine does not know it.
    fn give_up(&mut self, now: Instant) {
        for waiting in self.queue.iter_mut().filter(|it| it.deadline < now) {
            waiting.running.take().into_iter().for_each(|it| it.end(micros(now), false));
        }
    }
}

/// The times of all requests, exponentially distributed.
fn arrivals(sources: &[Source], start: Instant) -> Vec<(Instant, Source)> {
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    };
    let mut all = Vec::new();
    for source in sources {
        let mut at = start;
        while at < start + PLAY {
            all.push((at, *source));
            at += Duration::from_secs_f64(-random().ln() / source.rate);
        }
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

/// Plays requests against the engine. `is_guarded`: a [`Load`] decides which ones are admitted.
fn play(sources: &[Source], is_guarded: bool) -> BTreeMap<u64, Outcomes> {
    let load = Arc::new(Load::default());
    let start = *EPOCH + Duration::from_secs(1);
    let mut engine = Engine::new(start);
    for (began, Source { caller, deadline, .. }) in arrivals(sources, start) {
        engine.work_until(began);
        if is_guarded {
            engine.give_up(began);
        }
        let deadline = began + deadline;
        let running = is_guarded.then(|| load.enter(caller, began, deadline)).transpose();
        let is_refused = running.is_err();
        let request = Request { caller, began, deadline, running: running.unwrap_or_default() };
        match engine.outcomes(&request) {
            Some(outcomes) if is_refused => outcomes.refused += 1,
            _ => {}
        }
        if !is_refused {
            engine.queue.push_back(request);
        }
    }
    engine.work_until(start + PLAY * 100);
    engine.outcomes
}

#[test]
fn below_capacity_nothing_is_refused() {
    for sources in [vec![source(1, 320, 1000)], vec![source(1, 120, 200), source(2, 120, 200)]] {
        for (caller, outcomes) in play(&sources, true) {
            assert_eq!((outcomes.refused, outcomes.late), (0, 0), "caller {caller}");
        }
    }
}

/// Without the load's decisions, every request waits beyond its deadline, and the engine works in
/// vain.
#[test]
fn at_four_times_the_capacity_the_goodput_stays() {
    for deadline in [100, 250, 1000] {
        let goodput = |rate, is_guarded| {
            let outcomes = play(&[source(1, rate, deadline)], is_guarded);
            outcomes[&1].took.len() as f64
        };
        let (at, beyond) = (goodput(400, true), goodput(1600, true));
        assert!(beyond >= 0.9 * at, "{beyond} of {at} answers with deadlines of {deadline} ms");
        let unguarded = goodput(1600, false);
        assert!(unguarded < 0.2 * at, "{unguarded} without the guard: the test shows nothing");
    }
}

#[test]
fn a_caller_with_ten_times_its_share_does_not_double_the_latency_of_others() {
    let others: Vec<_> = (1..5).map(|caller| source(caller, 50, 2000)).collect();
    let p99 = |outcomes: &BTreeMap<u64, Outcomes>| {
        (1..5).map(|it| outcomes[&it].p99()).max().expect("there are callers")
    };
    let alone = p99(&play(&others, true));
    let attacked: Vec<_> = others.iter().copied().chain([source(9, 500, 2000)]).collect();
    let outcomes = play(&attacked, true);
    let beside = p99(&outcomes);
    let refused: usize = (1..5).map(|it| outcomes[&it].refused).sum();
    let unguarded = p99(&play(&attacked, false));
    assert!(beside <= alone * 2, "{beside:?} beside the attacker, {alone:?} without");
    assert!(refused <= 1600 / 50, "{refused} of 1,600 requests of others are refused");
    assert!(outcomes[&9].took.len() > 1000, "the attacker gets what others leave");
    assert!(unguarded > alone * 10, "{unguarded:?} without the guard: the test shows nothing");
}

#[test]
fn one_caller_alone_keeps_the_engine_busy() {
    let outcomes = play(&[source(1, 1600, 1000)], true);
    assert!(outcomes[&1].took.len() >= 3100, "{} of 3,200", outcomes[&1].took.len());
}
