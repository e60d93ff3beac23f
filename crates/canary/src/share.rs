//! The share of the traffic that goes to the canary.

use serde::{Deserialize, Serialize};

/// The probability that a request is assigned to the canary, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(u32);

/// The share is not between 0 and 1: with all or no traffic an arm has nothing to be
/// compared with.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("must be from 0.000001 to 0.999999, not {0}")]
pub struct InvalidShare(f64);

impl Share {
    pub(crate) const WHOLE: u32 = 1_000_000;

    /// The share nearest to `probability`.
    ///
    /// # Errors
    /// The probability, rounded to millionths, is not between 0 and 1.
    pub fn new(probability: f64) -> Result<Self, InvalidShare> {
        let millionths = (probability * f64::from(Self::WHOLE)).round();
        if (1.0..f64::from(Self::WHOLE)).contains(&millionths) {
            Ok(Self(millionths as u32))
        } else {
            Err(InvalidShare(probability))
        }
    }

    /// The probability.
    pub fn probability(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    pub(crate) fn millionths(self) -> u32 {
        self.0
    }
}

impl TryFrom<f64> for Share {
    type Error = InvalidShare;

    fn try_from(probability: f64) -> Result<Self, InvalidShare> {
        Self::new(probability)
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.probability()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_neither_0_nor_1() {
        assert_eq!(Share::new(0.1).map(Share::probability), Ok(0.1));
        for wrong in [0.0, 1.0, -0.1, 1e-9, f64::NAN, f64::INFINITY] {
            assert!(Share::new(wrong).is_err(), "{wrong}");
        }
    }
}
