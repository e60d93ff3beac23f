//! Compares the rates at which events occur in the two arms.

use super::{
    Side,
    mixture::{FRACTIONS, LogWealth, Prior},
};

/// Requests of one arm, and how many of them had the event.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) events: u64,
    pub(crate) requests: u64,
}

impl Tally {
    pub(crate) fn rate(self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.events as f64 / self.requests as f64 }
    }

    /// Requests without the event.
    pub(crate) fn non_events(self) -> u64 {
        self.requests.saturating_sub(self.events)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.requests += other.requests;
    }
}

/// Counts of both arms while the canary had one share.
///
/// A request's arm is drawn with a known probability `π`. So `(A - π)(y - g)` has the
/// mean `π(1 - π)d` for any outcomes: `A` is 1 for the canary, `y` is 1 for an event, `d`
/// is the canary's rate less live's, and `g` is any guess of the rate made before. A bet
/// at fair odds multiplies the wealth by `1 + λ((A - π)(y - g) - π(1 - π)d)`. It tests
/// `d` without assumptions on the requests: they need be neither alike nor independent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) share: f64,
    pub(crate) guess: f64,
    pub(crate) live: Tally,
    pub(crate) canary: Tally,
}

impl Table {
    /// The table of the complementary event.
    pub(crate) fn complement(self) -> Self {
        let others = |tally: Tally| Tally { events: tally.non_events(), ..tally };
        Self { live: others(self.live), canary: others(self.canary), ..self }
    }

    /// Updates the wealth of every stake by this stage's requests, against the null
    /// hypothesis that the difference is at most `null` (`More`) or at least `null`
    /// (`Less`).
    pub(crate) fn bet(&self, side: Side, null: f64, wealth: &mut LogWealth) {
        let outcomes = self.outcomes(side, null);
        let worst = outcomes.iter().map(|(gain, _)| -gain).fold(0.0, f64::max);
        for (won, fraction) in wealth.0.iter_mut().zip(FRACTIONS) {
            let happened = outcomes.iter().filter(|(_, count)| *count > 0.0);
            // Dividing by the worst case first makes it exactly -1 at the highest stake.
            let log_wins =
                happened.map(|(gain, count)| count * (1.0 + fraction * (gain / worst)).ln());
            *won += log_wins.sum::<f64>();
        }
    }

    /// The gain of a unit stake in each of the four cases, with the number of requests in
    /// each.
    fn outcomes(&self, side: Side, null: f64) -> [(f64, f64); 4] {
        let drift = self.share * (1.0 - self.share) * null;
        let gain = |arm: f64, event: f64| side.sign() * (arm * (event - self.guess) - drift);
        let (canary, live) = (1.0 - self.share, -self.share);
        [
            (gain(canary, 1.0), self.canary.events as f64),
            (gain(canary, 0.0), self.canary.non_events() as f64),
            (gain(live, 1.0), self.live.events as f64),
            (gain(live, 0.0), self.live.non_events() as f64),
        ]
    }

    /// An upper bound on the log wealth of every stake for a `null` and a guess of 0: the
    /// wealth of the stake that is optimal in hindsight.
    fn ceiling(&self, side: Side) -> f64 {
        let (canary, live) = (self.canary.events as f64, self.live.events as f64);
        let seen = canary / (canary + live);
        if canary + live == 0.0 || side.sign() * (seen - self.share) <= 0.0 {
            return 0.0;
        }
        let won = |events: f64, seen: f64, drawn: f64| {
            if events == 0.0 { 0.0 } else { events * (seen / drawn).ln() }
        };
        won(canary, seen, self.share) + won(live, 1.0 - seen, 1.0 - self.share)
    }

    /// This table with the canary's observed share instead of the drawn one, if that
    /// makes the difference smaller.
    ///
    /// With a guess of 0 only requests with an event count. A sample-ratio mismatch, for
    /// example because requests of one arm are lost, would then look like a difference of
    /// the rates.
    fn at_observed_share(self, side: Side) -> Self {
        let requests = self.canary.requests + self.live.requests;
        if self.guess != 0.0 || requests == 0 {
            return self;
        }
        let seen = self.canary.requests as f64 / requests as f64;
        let share = match side {
            Side::More => self.share.max(seen.min(0.999)),
            Side::Less => self.share.min(seen.max(0.001)),
        };
        Self { share, ..self }
    }
}

/// The log evidence of all stages that the difference of the rates lies beyond `null`:
/// the smaller of the evidence at the drawn share and at the observed share.
pub(crate) fn log_evidence(
    tables: impl Iterator<Item = Table> + Clone,
    side: Side,
    null: f64,
    prior: Prior,
) -> f64 {
    let drawn = log_wealth(tables.clone(), side, null).log_mixture(prior);
    if drawn <= 0.0 || tables.clone().all(|table| table.guess != 0.0) {
        return drawn;
    }
    drawn.min(
        log_wealth(tables.map(|table| table.at_observed_share(side)), side, null)
            .log_mixture(prior),
    )
}

fn log_wealth(tables: impl Iterator<Item = Table>, side: Side, null: f64) -> LogWealth {
    let mut wealth = LogWealth::INITIAL;
    tables.for_each(|table| table.bet(side, null, &mut wealth));
    wealth
}

/// An upper bound on [`log_evidence`] for a `null` and a guess of 0, in a tenth of the
/// time.
pub(crate) fn ceiling(tables: impl Iterator<Item = Table>, side: Side) -> f64 {
    tables.map(|table| table.at_observed_share(side).ceiling(side)).sum()
}
