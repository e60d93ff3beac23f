//! A simulated engine and its callers, in simulated time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::task::{ArcWake, waker};

use super::*;

/// The time at the beginning of a play that is not reported.
const BEFORE: Duration = Duration::from_secs(2);
/// The time after which a refused caller that sends again at once comes back.
const BACKOFF: Duration = Duration::from_millis(50);

/// Requests of one caller.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) caller: u64,
    pub(super) pattern: Pattern,
    pub(super) deadline: Duration,
    /// The time from a request's admission until its body is there.
    pub(super) body: Duration,
    /// The part of the deadline that has passed at the caller when a request arrives.
    pub(super) passed: Duration,
}

#[derive(Clone, Copy)]
pub(super) enum Pattern {
    /// At random times, this mean number a second.
    Open(f64),
    /// This many at a time, each of which is sent again when it has ended.
    Closed(usize),
}

/// An engine with some workers.
#[derive(Clone, Copy)]
pub(super) struct Engine {
    pub(super) workers: usize,
    /// The time of a request that begins so long after the start.
    pub(super) service: fn(Duration) -> Duration,
}

/// The outcomes of a caller's requests.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// The durations of answers within their deadlines.
    pub(super) took: Vec<Duration>,
    pub(super) refused: usize,
    /// Answered after the deadline.
    pub(super) late: usize,
}

impl Outcomes {
    /// The 99th percentile of the durations; the longest time if there are none.
    pub(super) fn p99(&self) -> Duration {
        let mut all = self.took.clone();
        all.sort_unstable();
        all.get(all.len() * 99 / 100).copied().unwrap_or(Duration::MAX)
    }
}

/// The outcomes of a play.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) by_caller: BTreeMap<u64, Outcomes>,
    /// The limit at the end of each second.
    pub(super) limits: Vec<u32>,
}

impl Played {
    pub(super) fn answered(&self) -> usize {
        self.by_caller.values().map(|it| it.took.len()).sum()
    }

    pub(super) fn refused(&self) -> usize {
        self.by_caller.values().map(|it| it.refused).sum()
    }

    pub(super) fn late(&self) -> usize {
        self.by_caller.values().map(|it| it.late).sum()
    }
}

type Admitted = Pin<Box<dyn Future<Output = Result<Running, Late>>>>;

struct Request {
    source: Source,
    began: Instant,
    running: Option<Running>,
    waits: Option<Admitted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(usize),
    HasBody(u64),
    GivesUp(u64),
    Done(u64),
    Second,
}

/// The requests that were woken.
#[derive(Default)]
struct Woken(Mutex<Vec<u64>>);

struct Waking(u64, Arc<Woken>);

impl ArcWake for Waking {
    fn wake_by_ref(it: &Arc<Self>) {
        it.1.0.lock().expect("a lock").push(it.0);
    }
}

struct Play {
    load: Arc<Load>,
    engine: Engine,
    sources: Vec<Source>,
    is_guarded: bool,
    start: Instant,
    end: Instant,
    events: BinaryHeap<Reverse<(Instant, Event)>>,
    requests: HashMap<u64, Request>,
    latest: u64,
    busy: usize,
    queue: VecDeque<u64>,
    /// Requests whose callers have gone, on which the engine works all the same.
    gone: HashMap<u64, Source>,
    woken: Arc<Woken>,
    random: u64,
    played: Played,
    reported: Instant,
}

/// Plays requests against the engine for some seconds. `is_guarded`: a [`Load`] decides which ones
/// are admitted. The outcomes of the first seconds are not reported if `is_warm`.
pub(super) fn play(
    engine: Engine,
    sources: &[Source],
    seconds: u64,
    is_guarded: bool,
    is_warm: bool,
) -> Played {
    Play::new(engine, sources, seconds, is_guarded, is_warm).played()
}

/// As [`play`], guarded and cold, with at most so many requests of the model in progress.
pub(super) fn play_within(most: u32, engine: Engine, sources: &[Source], seconds: u64) -> Played {
    let play = Play::new(engine, sources, seconds, true, false);
    play.load.allow(most);
    play.played()
}

impl Play {
    fn new(
        engine: Engine,
        sources: &[Source],
        seconds: u64,
        is_guarded: bool,
        is_warm: bool,
    ) -> Self {
        let start = *EPOCH + Duration::from_secs(1);
        let mut play = Self {
            load: Arc::default(),
            engine,
            sources: sources.to_vec(),
            is_guarded,
            start,
            end: start + Duration::from_secs(seconds),
            events: BinaryHeap::new(),
            requests: HashMap::new(),
            latest: 0,
            busy: 0,
            queue: VecDeque::new(),
            gone: HashMap::new(),
            woken: Arc::default(),
            random: 7,
            played: Played::default(),
            reported: if is_warm { start + BEFORE } else { start },
        };
        for (index, source) in sources.iter().enumerate() {
            let first = match source.pattern {
                Pattern::Open(_) => 1,
                Pattern::Closed(count) => count,
            };
            (0..first).for_each(|_| play.at(start, Event::Arrives(index)));
        }
        for second in 1..=seconds {
            play.at(start + Duration::from_secs(second), Event::Second);
        }
        play
    }

    fn played(mut self) -> Played {
        while let Some(Reverse((now, event))) = self.events.pop() {
            self.happens(now, event);
            self.wake(now);
        }
        self.played
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, event)));
    }

    fn happens(&mut self, now: Instant, event: Event) {
        match event {
            Event::Arrives(index) => self.arrives(now, index),
            Event::HasBody(id) => self.has_body(now, id),
            Event::GivesUp(id) => self.gives_up(now, id),
            Event::Done(id) => self.done(now, id),
            Event::Second => {
                self.played.limits.push(self.load.estimates.limit.load(Relaxed));
            }
        }
    }

    fn arrives(&mut self, now: Instant, index: usize) {
        if now >= self.end {
            return;
        }
        let source = self.sources[index];
        if let Pattern::Open(rate) = source.pattern {
            let until = Duration::from_secs_f64(-self.random().ln() / rate);
            self.at(now + until, Event::Arrives(index));
        }
        self.latest += 1;
        let id = self.latest;
        self.requests.insert(id, Request { source, began: now, running: None, waits: None });
        self.at(now + source.deadline - source.passed, Event::GivesUp(id));
        if !self.is_guarded {
            return self.has_body(now, id);
        }
        let deadline = now + source.deadline;
        let ask = Ask { caller: source.caller, now, deadline, is_first: false };
        match self.load.enter(&ask) {
            Ok(Entry::Running(running)) => self.admitted(now, id, running),
            Ok(Entry::Waiting(mut waiting)) => {
                let waits: Admitted = Box::pin(async move { waiting.admitted().await });
                self.request(id).waits = Some(waits);
                self.poll(now, id);
            }
            Err(_) => self.ends(now, id, |outcomes, _| outcomes.refused += 1),
        }
    }

    /// A number above 0 and up to 1.
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.random >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    fn request(&mut self, id: u64) -> &mut Request {
        self.requests.get_mut(&id).expect("a request")
    }

    /// Polls the requests that were admitted.
    fn wake(&mut self, now: Instant) {
        loop {
            let woken = std::mem::take(&mut *self.woken.0.lock().expect("a lock"));
            if woken.is_empty() {
                return;
            }
            woken.into_iter().for_each(|id| self.poll(now, id));
        }
    }

    fn poll(&mut self, now: Instant, id: u64) {
        let waker = waker(Arc::new(Waking(id, Arc::clone(&self.woken))));
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(waits) = &mut request.waits else { return };
        let Poll::Ready(admitted) = waits.as_mut().poll(&mut Context::from_waker(&waker)) else {
            return;
        };
        request.waits = None;
        match admitted {
            Ok(running) => self.admitted(now, id, running),
            Err(_) => self.ends(now, id, |outcomes, _| outcomes.refused += 1),
        }
    }

    fn admitted(&mut self, now: Instant, id: u64, running: Running) {
        let request = self.request(id);
        request.running = Some(running);
        match request.source.body {
            Duration::ZERO => self.has_body(now, id),
            time => self.at(now + time, Event::HasBody(id)),
        }
    }

    fn has_body(&mut self, now: Instant, id: u64) {
        let Some(request) = self.requests.get(&id) else { return };
        if let Some(running) = &request.running {
            match request.source.body {
                Duration::ZERO => running.begins_at_once(),
                _ => running.begins(now),
            }
        }
        self.queue.push_back(id);
        self.work(now);
    }

    fn work(&mut self, now: Instant) {
        while self.busy < self.engine.workers
            && let Some(id) = self.queue.pop_front()
        {
            self.busy += 1;
            // A tenth more or less.
            let service = (self.engine.service)(now - self.start);
            let service = service.mul_f64(0.9 + 0.2 * self.random());
            self.at(now + service, Event::Done(id));
        }
    }

    fn done(&mut self, now: Instant, id: u64) {
        self.busy -= 1;
        if let Some(source) = self.gone.remove(&id) {
            if now - source.deadline >= self.reported {
                self.played.by_caller.entry(source.caller).or_default().late += 1;
            }
        } else {
            if let Some(running) = self.request(id).running.take() {
                running.end(micros(now), true);
            }
            self.ends(now, id, |outcomes, took| outcomes.took.push(took));
        }
        self.work(now);
    }

    /// A caller gives up at its deadline; the engine does not know it, as TensorFlow Serving.
    fn gives_up(&mut self, now: Instant, id: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        match request.running.take() {
            Some(running) => {
                self.load.missed(running.admitted());
                running.end(micros(now), false);
            }
            None if self.is_guarded => {
                return self.ends(now, id, |outcomes, _| outcomes.refused += 1);
            }
            None => {}
        }
        self.gone.insert(id, self.requests[&id].source);
        self.ends(now, id, |_, _| {});
    }

    /// A request ends; a caller that sends again does so.
    fn ends(&mut self, now: Instant, id: u64, count: fn(&mut Outcomes, Duration)) {
        let Some(Request { source, began, .. }) = self.requests.remove(&id) else { return };
        let mut outcomes = Outcomes::default();
        count(&mut outcomes, now - began);
        let is_refused = outcomes.refused > 0;
        if began >= self.reported && began < self.end {
            count(self.played.by_caller.entry(source.caller).or_default(), now - began);
        }
        if let Pattern::Closed(_) = source.pattern {
            let index = self.sources.iter().position(|it| it.caller == source.caller);
            let again = if is_refused { now + BACKOFF } else { now };
            self.at(again, Event::Arrives(index.expect("a source")));
        }
    }
}
