//! Do events fall to the canary more often, or less often, than requests do?

use super::{
    Side,
    mixture::{FRACTIONS, Prior, Purses},
};

/// Requests of one arm, and those among them with the event.
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
    pub(crate) fn quiet(self) -> u64 {
        self.requests.saturating_sub(self.events)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.requests += other.requests;
    }
}

/// Both arms while the canary had one share.
///
/// Who is given a request is drawn with a known probability `π`. So, whatever
/// came of the request, `(A - π)(y - g)` has the mean `π(1 - π)d`: `A` is 1 for
/// the canary, `y` is 1 for an event, `d` is the canary's rate less live's, and
/// `g` is any guess of the rate made before. A bet on that at fair odds wins
/// `1 + λ((A - π)(y - g) - π(1 - π)d)`, and is a test of `d` that needs nothing of
/// the requests, neither that they are alike nor that they are independent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) share: f64,
    pub(crate) guess: f64,
    pub(crate) live: Tally,
    pub(crate) canary: Tally,
}

impl Table {
    /// What happened to the requests without the event.
    pub(crate) fn of_the_others(self) -> Self {
        let others = |tally: Tally| Tally { events: tally.quiet(), ..tally };
        Self { live: others(self.live), canary: others(self.canary), ..self }
    }

    /// Plays this stage's requests with every stake, against the hypothesis
    /// that the difference is on the wrong `side` of `null`, or on it.
    pub(crate) fn play(&self, side: Side, null: f64, purses: &mut Purses) {
        let outcomes = self.outcomes(side, null);
        let worst = outcomes.iter().map(|(gain, _)| -gain).fold(0.0, f64::max);
        for (won, fraction) in purses.0.iter_mut().zip(FRACTIONS) {
            let happened = outcomes.iter().filter(|(_, count)| *count > 0.0);
            // In this order the worst case at the highest stake is -1 exactly.
            let log_wins =
                happened.map(|(gain, count)| count * (1.0 + fraction * (gain / worst)).ln());
            *won += log_wins.sum::<f64>();
        }
    }

    /// What a unit staked gains in each case, and how often that was the case.
    fn outcomes(&self, side: Side, null: f64) -> [(f64, f64); 4] {
        let drift = self.share * (1.0 - self.share) * null;
        let gain = |arm: f64, event: f64| side.sign() * (arm * (event - self.guess) - drift);
        let (canary, live) = (1.0 - self.share, -self.share);
        [
            (gain(canary, 1.0), self.canary.events as f64),
            (gain(canary, 0.0), self.canary.quiet() as f64),
            (gain(live, 1.0), self.live.events as f64),
            (gain(live, 0.0), self.live.quiet() as f64),
        ]
    }

    /// No stake has won more than this against a `null` of nothing, without a
    /// guess: that one has which knew beforehand how the events would fall.
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

    /// The same at the share that was seen, if that leaves less of a difference.
    ///
    /// Without a guess only requests with an event count, and a share that is not
    /// what was drawn by, as when requests of one arm are lost, would pass for a
    /// difference.
    fn careful(self, side: Side) -> Self {
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

/// The evidence of all stages that the difference of the rates lies beyond
/// `null`, as a logarithm: at the share that was drawn by, or at the one that was
/// seen if that is less.
pub(crate) fn log_evidence(
    tables: impl Iterator<Item = Table> + Clone,
    side: Side,
    null: f64,
    prior: Prior,
) -> f64 {
    let drawn = played(tables.clone(), side, null).together(prior);
    if drawn <= 0.0 || tables.clone().all(|table| table.guess != 0.0) {
        return drawn;
    }
    drawn.min(played(tables.map(|table| table.careful(side)), side, null).together(prior))
}

fn played(tables: impl Iterator<Item = Table>, side: Side, null: f64) -> Purses {
    let mut purses = Purses::START;
    tables.for_each(|table| table.play(side, null, &mut purses));
    purses
}

/// What [`log_evidence`] cannot exceed at a `null` of nothing without a guess, in a
/// tenth of the time.
pub(crate) fn ceiling(tables: impl Iterator<Item = Table>, side: Side) -> f64 {
    tables.map(|table| table.careful(side).ceiling(side)).sum()
}
