//! The loops that send requests and receive answers, one per thread.

use std::{
    io,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use tokio::task::coop::consume_budget;

use crate::{
    arrivals::{Arrivals, Schedule},
    client::Client,
    failure::Failure,
    message::Message,
    stop::Stop,
    tally::{Done, Tally, Window},
    timer::Timer,
};

/// The timing of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// Open loop: requests are sent at their due times.
    Open { rate: f64, arrivals: Arrivals },
    /// Closed loop: a request is sent when another one has ended.
    Closed,
}

impl Pace {
    /// Requests due per second; `None` in a closed loop.
    pub(crate) fn rate(self) -> Option<f64> {
        match self {
            Self::Open { rate, .. } => Some(rate),
            Self::Closed => None,
        }
    }
}

/// The work of one thread.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) client: Client,
    pub(crate) messages: Arc<[Message]>,
    pub(crate) pace: Pace,
    /// Requests in flight at once.
    pub(crate) in_flight: usize,
    pub(crate) timeout: Duration,
    /// The thread's index, and the number of threads.
    pub(crate) share: (usize, usize),
    pub(crate) tally: Arc<Mutex<Tally>>,
    pub(crate) stop: Stop,
}

impl Worker {
    /// Sends from `begin` to the end of the window, and waits for all answers.
    pub(crate) async fn run(self, begin: Instant, window: Window) -> io::Result<()> {
        match self.pace {
            Pace::Open { rate, arrivals } => {
                let schedule = Schedule::new(arrivals, rate, begin, self.share);
                self.open_loop(schedule, window).await
            }
            Pace::Closed => {
                self.closed_loop(window).await;
                Ok(())
            }
        }
    }

    async fn open_loop(&self, mut schedule: Schedule, mut window: Window) -> io::Result<()> {
        let mut stopped = pin!(self.stop.requested().fuse());
        let mut timer = Timer::new()?;
        let mut under_way = FuturesUnordered::new();
        let mut turn = self.share.0;
        loop {
            // Lets connections make progress even if more requests are due than can be
            // sent.
            consume_budget().await;
            let now = Instant::now();
            while schedule.due() <= now && schedule.due() < window.end {
                if under_way.len() < self.in_flight {
                    under_way.push(self.exchange(turn, turn, schedule.due()));
                } else if window.holds(schedule.due()) {
                    self.tally().fail(Failure::saturated());
                }
                turn += 1;
                schedule.advance();
            }
            let more = schedule.due() < window.end;
            if !more && under_way.is_empty() {
                return Ok(());
            }
            tokio::select! {
                // Answers take precedence over the timer, because their times are
                // measured.
                biased;
                moment = &mut stopped => window.cut(moment),
                Some(done) = under_way.next() => {
                    let due = done.due;
                    self.tally().add(done, due, &window);
                }
                waited = timer.until(schedule.due()), if more => waited?,
            }
        }
    }

    async fn closed_loop(&self, mut window: Window) {
        let mut stopped = pin!(self.stop.requested().fuse());
        let start = |connection, turn| self.exchange(connection, turn, Instant::now());
        let mut turn = self.share.0 + self.in_flight;
        let mut under_way: FuturesUnordered<_> =
            (self.share.0..turn).map(|turn| start(turn, turn)).collect();
        loop {
            // Lets connections make progress even if requests fail at once.
            consume_budget().await;
            let done = tokio::select! {
                biased;
                moment = &mut stopped => {
                    window.cut(moment);
                    continue;
                }
                done = under_way.next() => done,
            };
            let Some(done) = done else { return };
            if done.ended < window.end {
                // The connection that became free sends the next request; with
                // round-robin all requests would end up waiting for the slowest
                // connection.
                under_way.push(start(done.connection, turn));
                turn += 1;
            }
            let ended = done.ended;
            self.tally().add(done, ended, &window);
        }
    }

    /// Sends a message on a connection; both are selected by index, modulo their number.
    async fn exchange(&self, connection: usize, turn: usize, due: Instant) -> Done {
        let sent = Instant::now();
        let message = &self.messages[turn % self.messages.len()];
        let answer = self.client.call(connection, message, self.timeout).await;
        let outcome = answer.map(|answer| answer.body.len());
        Done { connection, due, sent, ended: Instant::now(), outcome }
    }

    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
