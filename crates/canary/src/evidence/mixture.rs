//! Mixtures over stakes, since the best stake is not known in advance.
//!
//! Each stake has its own wealth from the first request to the last. The weighted mean of
//! these is an e-process when each of them is one (Robbins 1970; Waudby-Smith & Ramdas
//! 2024).

use std::f64::consts::FRAC_1_SQRT_2;

/// Number of stakes.
pub(crate) const STAKES: usize = 18;

/// The stakes as fractions of the largest admissible one: from 1 down to 0.3 %, each
/// smaller than the one before by a factor of √2.
pub(crate) const FRACTIONS: [f64; STAKES] = {
    let mut fractions =
        [1.0, FRAC_1_SQRT_2, 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.];
    let mut stake = 2;
    while stake < STAKES {
        fractions[stake] = fractions[stake - 2] / 2.0;
        stake += 1;
    }
    fractions
};

/// The weights of the stakes in the mixture, from the highest down; they add up to 1.
/// They express where differences are expected. A bad choice costs requests, not
/// validity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prior([f64; STAKES]);

impl Prior {
    /// Without prior knowledge.
    pub(crate) const UNIFORM: Self = Self([1.0 / STAKES as f64; STAKES]);

    /// For events that also occur in live, with a rate one and a half to ten times as
    /// high in the canary.
    pub(crate) const MODERATE: Self = Self([
        0.02, 0.03, 0.05, 0.08, 0.10, 0.10, 0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.04, 0.03,
        0.02, 0.02, 0.02,
    ]);

    /// For ranks that are shifted by a tenth of a standard deviation or more.
    pub(crate) const HIGH: Self = Self([
        0.16, 0.15, 0.13, 0.11, 0.09, 0.08, 0.07, 0.05, 0.04, 0.03, 0.02, 0.02, 0.01, 0.01, 0.01,
        0.01, 0.005, 0.005,
    ]);

    /// For events that live does not have at all.
    pub(crate) const HIGHEST: Self = Self([
        0.45, 0.20, 0.05, 0.03, 0.03, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02,
        0.02, 0.01, 0.01,
    ]);
}

/// The log wealth of each stake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogWealth(pub(crate) [f64; STAKES]);

impl LogWealth {
    /// A wealth of 1 for every stake.
    pub(crate) const INITIAL: Self = Self([0.0; STAKES]);

    /// The log of the mixture's wealth. It reaches `ln(1 / a)` with a probability of at
    /// most `a` if the null hypothesis is true (Ville 1939).
    pub(crate) fn log_mixture(&self, prior: Prior) -> f64 {
        let most = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most == f64::NEG_INFINITY {
            return most;
        }
        let wealth = self.0.iter().enumerate();
        most + wealth.map(|(stake, won)| prior.0[stake] * (won - most).exp()).sum::<f64>().ln()
    }
}
