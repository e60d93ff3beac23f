//! Evidence that may be looked at after every request.
//!
//! All of it is won by betting (Shafer 2021; Ramdas, Grünwald, Vovk & Shafer
//! 2023): a purse of 1 is staked, request by request, on games that are fair or
//! worse as long as a hypothesis is true. What the purse holds is then evidence
//! against it, and holds more than `1/a` at any time at all with a probability of
//! at most `a` (Ville's inequality). The hypotheses that have not lost at `1/a` are
//! a confidence sequence.
//!
//! Every purse here is a function of counts, so that counts of several replicas
//! can be added up before it is worked out.

pub(crate) mod events;
pub(crate) mod mixture;
pub(crate) mod proportion;
pub(crate) mod rank;

/// Which alternative is bet on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// More than the hypothesis says.
    More,
    /// Less than the hypothesis says.
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

/// The bound of a confidence sequence: where, between `refuted`, which has lost, and
/// `kept`, the evidence falls under `needed`. `refuted` itself if it has not lost.
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
