//! Users who send several requests: a user's arm and score stay the same, so later
//! requests carry no new information.

use std::time::Duration;

use outrigger_canary::{
    Decider, Decision, Draw, Exposures, Outcome, Reference, Salt,
    simulation::{Effect, Random, Trial},
};

use crate::{HORIZON, RATE, traffic};

/// Each user sends about twenty requests until the canary has had [`HORIZON`].
const USERS: usize = 10_000;

/// Which requests of a user the judge records.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Counted {
    Every,
    First,
}

/// True if a canary like live is rolled back.
pub(crate) fn rolled_back(decider: &Decider, counted: Counted, seed: u64) -> bool {
    let mut random = Random::new(!seed);
    let salt = Salt::of_secret(&seed.to_le_bytes());
    let user = |number: usize| (Draw::of_key(&salt, &number.to_string()), random.beta_2_5());
    let users: Vec<(Draw, f64)> = (0..USERS).map(user).collect();

    let mut traffic = traffic(Effect::NONE, seed);
    let sample = traffic.before(Reference::REQUESTS);
    let mut trial = Trial::new(decider, Reference::new(&sample, decider.config().quantile()));
    let exposures = Exposures::new();
    for request in 1..=10 * HORIZON {
        let (draw, score) = users[random.below(USERS)];
        let mut seen = traffic.request();
        if counted == Counted::First && !exposures.first(draw) {
            continue;
        }
        seen.arm = draw.arm(traffic.share);
        if let Outcome::Scored(_) = seen.outcome {
            seen.outcome = Outcome::Scored(score);
        }
        let elapsed = Duration::from_secs_f64(request as f64 / RATE);
        match trial.observe(traffic.share, &seen, elapsed) {
            Decision::Continue => {}
            decision => return decision == Decision::Rollback,
        }
    }
    false
}
