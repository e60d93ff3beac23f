//! Tests the rate of an event in one group of requests.

use super::{
    Side,
    events::Tally,
    mixture::{FRACTIONS, LogWealth, Prior, STAKES},
};

/// The log evidence that a rate lies beyond its null value. Each stage has its own null
/// value, above 0 and below 1.
///
/// The bet is a likelihood ratio: the probability of the observed counts under the
/// alternative rate over that under the null value.
pub(crate) fn log_evidence(stages: impl Iterator<Item = (Tally, f64)>, side: Side) -> f64 {
    let mut wealth = LogWealth::INITIAL;
    for (tally, null) in stages {
        for (stake, won) in wealth.0.iter_mut().enumerate() {
            let rate = match side {
                // Rates between the null value and 1, evenly spaced on a logarithmic
                // scale.
                Side::More => null.powf((stake as f64 + 0.5) / STAKES as f64),
                Side::Less => null * (1.0 - FRACTIONS[stake]),
            };
            let odds =
                [(rate / null, tally.events), ((1.0 - rate) / (1.0 - null), tally.non_events())];
            let happened = odds.into_iter().filter(|(_, count)| *count > 0);
            *won += happened.map(|(odds, count)| count as f64 * odds.ln()).sum::<f64>();
        }
    }
    wealth.log_mixture(Prior::UNIFORM)
}
