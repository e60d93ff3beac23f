//! A bettor who does not know the right stake divides the purse among many.
//!
//! Each of a ladder of stakes is played by a purse of its own from the first
//! request to the last; together they hold the mixture of what each has won,
//! which is an e-process when each of them is (Robbins 1970; Waudby-Smith &
//! Ramdas 2024).

use std::f64::consts::FRAC_1_SQRT_2;

/// How many stakes are played.
pub(crate) const RUNGS: usize = 18;

/// The stakes, as fractions of all that may be staked: from 1 down to 0.3 %,
/// each by √2 less than the one before.
pub(crate) const FRACTIONS: [f64; RUNGS] = {
    let mut fractions =
        [1.0, FRAC_1_SQRT_2, 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.];
    let mut rung = 2;
    while rung < RUNGS {
        fractions[rung] = fractions[rung - 2] / 2.0;
        rung += 1;
    }
    fractions
};

/// How the purse is divided among the stakes at the start, from the highest down.
/// It must add up to 1, and says where differences are expected: a wrong guess
/// costs requests, not correctness.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prior([f64; RUNGS]);

impl Prior {
    /// Nothing is known.
    pub(crate) const EVEN: Self = Self([1.0 / RUNGS as f64; RUNGS]);

    /// Events that happen anyhow, one and a half to ten times as often.
    pub(crate) const SOME: Self = Self([
        0.02, 0.03, 0.05, 0.08, 0.10, 0.10, 0.10, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.04, 0.03,
        0.02, 0.02, 0.02,
    ]);

    /// Ranks that are moved by a tenth of a standard deviation or more.
    pub(crate) const HIGH: Self = Self([
        0.16, 0.15, 0.13, 0.11, 0.09, 0.08, 0.07, 0.05, 0.04, 0.03, 0.02, 0.02, 0.01, 0.01, 0.01,
        0.01, 0.005, 0.005,
    ]);

    /// What does not happen in live at all.
    pub(crate) const BOLD: Self = Self([
        0.45, 0.20, 0.05, 0.03, 0.03, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02,
        0.02, 0.01, 0.01,
    ]);
}

/// The logarithm of what each stake has made of 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purses(pub(crate) [f64; RUNGS]);

impl Purses {
    /// Nothing won or lost yet.
    pub(crate) const START: Self = Self([0.0; RUNGS]);

    /// The logarithm of what they hold together: `ln(1 / a)` is reached with a
    /// probability of at most `a` if the null hypothesis is true (Ville 1939).
    pub(crate) fn together(&self, prior: Prior) -> f64 {
        let most = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most == f64::NEG_INFINITY {
            return most;
        }
        let purses = self.0.iter().enumerate();
        most + purses.map(|(rung, won)| prior.0[rung] * (won - most).exp()).sum::<f64>().ln()
    }
}
