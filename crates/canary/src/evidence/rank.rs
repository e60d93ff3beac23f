//! Compares the arms by the ranks of their scores.

use super::{
    Side,
    mixture::{FRACTIONS, LogWealth, Prior},
};

/// `ln(1 + x) >= x - x²/2 + x³/3 - QUARTIC x⁴` for `|x| <= 1/2`, with equality at `-1/2`:
/// `16 (ln 2 - 1/2 - 1/8 - 1/24)`.
const QUARTIC: f64 = 0.423_688_222_292_458_6;

/// Counts of both arms while the canary had one share. The test uses `x = (A - π)y`,
/// where `A` is 1 for the canary, `π` is its share, and `y`, between -1/2 and 1/2, is the
/// score's rank among live's scores from before the trial.
///
/// `x` has the mean `π(1 - π)d`, where `d` is the difference of the mean ranks: the
/// probability that a score of the canary exceeds one of live, less 1/2. The wealth of
/// the bet, a product of `1 + λ(x - π(1 - π)d)`, is bounded from below by a polynomial in
/// a few power sums of `x`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranks<'s> {
    pub(crate) share: f64,
    pub(crate) ranks: &'s [f64],
    /// Live's requests with each rank.
    pub(crate) live: &'s [u64],
    /// The canary's requests with each rank.
    pub(crate) canary: &'s [u64],
}

impl Ranks<'_> {
    fn requests(&self) -> f64 {
        self.live.iter().chain(self.canary).sum::<u64>() as f64
    }

    /// The sums of the first `N` powers of `x`.
    fn powers<const N: usize>(&self) -> [f64; N] {
        let (mut live, mut canary) = ([0.0; N], [0.0; N]);
        for ((rank, in_live), in_canary) in self.ranks.iter().zip(self.live).zip(self.canary) {
            let mut power = 1.0;
            for degree in 0..N {
                power *= rank;
                // Signed integers convert to `f64` in one instruction.
                live[degree] += *in_live as i64 as f64 * power;
                canary[degree] += *in_canary as i64 as f64 * power;
            }
        }
        let (mut for_live, mut for_canary) = (1.0, 1.0);
        std::array::from_fn(|degree| {
            for_live *= -self.share;
            for_canary *= 1.0 - self.share;
            canary[degree] * for_canary + live[degree] * for_live
        })
    }

    /// The derivative of the expected sum of `x` with respect to the difference of the
    /// mean ranks.
    fn information(&self) -> f64 {
        self.requests() * self.share * (1.0 - self.share)
    }

    fn bet(&self, side: Side, null: f64, wealth: &mut LogWealth) {
        let drift = self.share * (1.0 - self.share) * null;
        let [first, second, third, fourth] = self.shifted(drift);
        let most = 0.5 / (0.5 * self.share.max(1.0 - self.share) + drift.abs());
        for (won, fraction) in wealth.0.iter_mut().zip(FRACTIONS) {
            let stake = side.sign() * fraction * most;
            let cubic = third / 3.0 - stake * QUARTIC * fourth;
            *won += stake * (first + stake * (stake * cubic - second / 2.0));
        }
    }

    /// The sums of the powers of `x - drift`.
    fn shifted(&self, drift: f64) -> [f64; 4] {
        let [a, b, c, d] = self.powers();
        let (n, e) = (self.requests(), drift);
        [
            a - n * e,
            b - 2.0 * e * a + n * e * e,
            c - 3.0 * e * b + 3.0 * e * e * a - n * e.powi(3),
            d - 4.0 * e * c + 6.0 * e * e * b - 4.0 * e.powi(3) * a + n * e.powi(4),
        ]
    }
}

/// The log evidence of all stages that the difference of the mean ranks lies beyond
/// `null`.
pub(crate) fn log_evidence<'s>(
    stages: impl Iterator<Item = Ranks<'s>>,
    side: Side,
    null: f64,
) -> f64 {
    let mut wealth = LogWealth::INITIAL;
    stages.for_each(|stage| stage.bet(side, null, &mut wealth));
    wealth.log_mixture(Prior::HIGH)
}

/// The difference of the mean ranks, and the expected log evidence against 0: about half
/// the square of the difference in standard errors.
pub(crate) fn estimate<'s>(stages: impl Iterator<Item = Ranks<'s>>) -> (f64, f64) {
    let (mut sum, mut information, mut square) = (0.0, 0.0, 0.0);
    for stage in stages {
        let [first, second] = stage.powers();
        sum += first;
        square += second;
        information += stage.information();
    }
    if square == 0.0 { (0.0, 0.0) } else { (sum / information, sum * sum / (2.0 * square)) }
}
