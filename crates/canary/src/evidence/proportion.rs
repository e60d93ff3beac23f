//! How often does something happen, of what is looked at alone?

use super::{
    Side,
    events::Tally,
    mixture::{FRACTIONS, Prior, Purses, RUNGS},
};

/// The evidence that a rate lies beyond what it should be, as a logarithm, from
/// stages each of which has a rate of its own that it should have, above 0 and
/// below 1.
///
/// The bet is a likelihood ratio: how much more probable what was seen is if the
/// rate is another one than if it is that.
pub(crate) fn log_evidence(stages: impl Iterator<Item = (Tally, f64)>, side: Side) -> f64 {
    let mut purses = Purses::START;
    for (tally, null) in stages {
        for (rung, won) in purses.0.iter_mut().enumerate() {
            let rate = match side {
                // Evenly between it and 1, by the logarithm.
                Side::More => null.powf((rung as f64 + 0.5) / RUNGS as f64),
                Side::Less => null * (1.0 - FRACTIONS[rung]),
            };
            let odds = [(rate / null, tally.events), ((1.0 - rate) / (1.0 - null), tally.quiet())];
            let happened = odds.into_iter().filter(|(_, count)| *count > 0);
            *won += happened.map(|(odds, count)| count as f64 * odds.ln()).sum::<f64>();
        }
    }
    purses.together(Prior::EVEN)
}
