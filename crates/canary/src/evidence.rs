//! Evidence that is valid at every look (e-processes).
//!
//! Tests by betting (Shafer 2021; Ramdas, Grünwald, Vovk & Shafer 2023): a wealth of 1 is
//! staked, request by request, on games that are fair or worse while the null hypothesis
//! is true. The wealth is then an e-process: it ever exceeds `1/a` with a probability of
//! at most `a` (Ville's inequality). The null hypotheses that are not rejected at `1/a`
//! form a confidence sequence.
//!
//! Every wealth here is a function of counts, so that counts of several replicas can be
//! added first.

pub(crate) mod events;
pub(crate) mod mixture;
pub(crate) mod proportion;
pub(crate) mod rank;

/// The one-sided alternative that is bet on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The parameter is larger than under the null hypothesis.
    More,
    /// The parameter is smaller than under the null hypothesis.
    Less,
}

impl Side {
    pub(crate) fn sign(self) -> f64 {
        match self {
            Self::More => 1.0,
            Self::Less => -1.0,
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::More => Self::Less,
            Self::Less => Self::More,
        }
    }
}

/// The bound of a confidence sequence, by bisection between the rejected value `refuted`
/// and the value `kept`: the point where the evidence falls below `needed`. Returns
/// `refuted` if that value is not rejected.
pub(crate) fn bound(refuted: f64, kept: f64, needed: f64, evidence: impl Fn(f64) -> f64) -> f64 {
    if evidence(refuted) < needed {
        return refuted;
    }
    let (mut refuted, mut kept) = (refuted, kept);
    for _ in 0..30 {
        let middle = f64::midpoint(refuted, kept);
        if evidence(middle) >= needed { refuted = middle } else { kept = middle }
    }
    refuted
}

#[cfg(test)]
mod tests;
