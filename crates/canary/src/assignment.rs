//! Which arm a request is given to.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outrigger_core::Arm;
use serde::{Deserialize, Serialize};

use crate::Share;

/// What chance has drawn for a request: a place between 0 and 1, in 2^64ths. The
/// canary has those below its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    /// That of a routing key: the same for the same salt and key, in every process and
    /// on every machine. Another salt is another draw, so that not always the
    /// same users try what is new: the canary's digest makes a good one.
    pub fn of_key(salt: &str, routing_key: &str) -> Self {
        let [salt, key] = [salt, routing_key].map(|text| farmhash::fingerprint64(text.as_bytes()));
        // The salt is mixed by itself first: as a difference of two keys' hashes it
        // would only exchange their draws.
        Self(mixed(mixed(salt).wrapping_add(key)))
    }

    /// That of a request without a routing key: 64 random bits.
    pub const fn at_random(bits: u64) -> Self {
        Self(bits)
    }

    /// The arm, while the canary has `share`. A share that grows only adds draws to the
    /// canary's.
    pub fn arm(self, share: Share) -> Arm {
        let millionth = (u128::from(self.0) * u128::from(Share::WHOLE)) >> 64;
        if millionth < u128::from(share.millionths()) { Arm::Canary } else { Arm::Live }
    }
}

/// Which routing keys were seen during a trial.
///
/// A user keeps the arm, so that a second request tells of the user again but was
/// not drawn again: a judge that counts it takes one slow user of the canary's for
/// a slow canary. Only the first request of each key is to be recorded. Which keys
/// were seen is held in a bit for each, found by hash; one that finds its bit taken
/// passes for seen, whichever arm it has.
///
/// Threads may share it: no lock, and nothing is written for keys seen before. It is
/// kept over restarts as base64 of its bits.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Exposures(Box<[AtomicU64]>);

/// What was written is not [`Exposures::KEYS`] bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the keys seen during a trial")]
pub struct InvalidExposures;

impl Exposures {
    /// So many keys at most are told apart, in as many bits: 128 KiB.
    pub const KEYS: u64 = 1 << 20;

    /// None was seen.
    pub fn new() -> Self {
        Self((0..Self::KEYS / 64).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether the key of this draw is seen for the first time.
    pub fn first(&self, draw: Draw) -> bool {
        // Mixed again, or the keys of one arm would have the bits to themselves.
        let place = mixed(draw.0) % Self::KEYS;
        let word = &self.0[(place / 64) as usize];
        let bit = 1 << (place % 64);
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Whether the key of this draw, which is the canary's, is seen there for the first
    /// time: live may have had it while the share was smaller. This takes a bit more.
    pub fn first_on_canary(&self, draw: Draw) -> bool {
        self.first(Draw(mixed(draw.0)))
    }
}

impl Default for Exposures {
    fn default() -> Self {
        Self::new()
    }
}

/// As they are at the time; keys that are seen meanwhile may be missing.
impl Clone for Exposures {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect())
    }
}

impl From<Exposures> for String {
    fn from(exposures: Exposures) -> Self {
        let words = exposures.0.into_iter().map(AtomicU64::into_inner);
        STANDARD.encode(words.flat_map(u64::to_le_bytes).collect::<Vec<_>>())
    }
}

impl TryFrom<String> for Exposures {
    type Error = InvalidExposures;

    fn try_from(written: String) -> Result<Self, InvalidExposures> {
        let bytes = STANDARD.decode(written).map_err(|_| InvalidExposures)?;
        if bytes.len() as u64 * 8 != Self::KEYS {
            return Err(InvalidExposures);
        }
        let (words, _) = bytes.as_chunks();
        Ok(Self(words.iter().map(|word| AtomicU64::new(u64::from_le_bytes(*word))).collect()))
    }
}

/// The finalizer of splitmix64 (Steele, Lea & Flood 2014): every bit depends on
/// every other.
const fn mixed(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: usize = 100_000;

    fn keys() -> impl Iterator<Item = String> {
        (0..KEYS).map(|number| format!("user-{number}"))
    }

    fn share(share: f64) -> Share {
        Share::new(share).unwrap()
    }

    fn on_canary(salt: &str, share: Share) -> Vec<bool> {
        keys().map(|key| Draw::of_key(salt, &key).arm(share) == Arm::Canary).collect()
    }

    /// Whether so many of `of` keys is within three standard deviations of a share.
    fn assert_binomial(count: usize, of: usize, share: f64) {
        let deviation = (of as f64 * share * (1.0 - share)).sqrt();
        let off = (count as f64 - of as f64 * share) / deviation;
        assert!(off.abs() < 3.0, "{count} of {of} at {share}: {off} deviations");
    }

    #[test]
    fn a_key_has_the_same_arm_in_every_release() {
        // Written down from the first: another hash would move users between arms.
        let draws =
            ["", "a", "user-1", "user-7", "Jürgen"].map(|key| Draw::of_key("sha256:0a", key).0);
        let expected = [
            0xa1dc_f5c6_35b5_85b5,
            0xfc64_b2c8_0628_5cd3,
            0xce39_2ff3_8d6c_c535,
            0x4651_184f_2559_3f63,
            0x3e62_079d_2b26_f3c1,
        ];
        assert_eq!(draws, expected);
    }

    #[test]
    fn a_share_of_the_keys_is_on_the_canary() {
        for (salt, probability) in [("a", 0.001), ("b", 0.01), ("c", 0.1), ("d", 0.5), ("e", 0.99)]
        {
            let count =
                on_canary(salt, share(probability)).iter().filter(|canary| **canary).count();
            assert_binomial(count, KEYS, probability);
        }
    }

    #[test]
    fn a_growing_share_only_adds_keys() {
        let mut before = vec![false; KEYS];
        for probability in [0.01, 0.05, 0.1, 0.25, 0.5, 0.9] {
            let now = on_canary("sha256:0a", share(probability));
            assert!(before.iter().zip(&now).all(|(before, now)| *now || !before));
            before = now;
        }
    }

    #[test]
    fn another_salt_draws_anew() {
        let [one, other] = ["sha256:0a", "sha256:0b"].map(|salt| on_canary(salt, share(0.1)));
        let both = one.iter().zip(&other).filter(|(one, other)| **one && **other).count();
        assert_binomial(both, KEYS, 0.01);
    }

    #[test]
    fn a_request_without_a_key_goes_where_the_draw_says() {
        let tenth = share(0.1);
        assert_eq!(Draw::at_random(0).arm(tenth), Arm::Canary);
        assert_eq!(Draw::at_random(u64::MAX / 10).arm(tenth), Arm::Canary);
        assert_eq!(Draw::at_random(u64::MAX / 10 + 2).arm(tenth), Arm::Live);
        assert_eq!(Draw::at_random(u64::MAX).arm(tenth), Arm::Live);
    }

    #[test]
    fn each_key_is_seen_first_once_and_most_are() {
        let exposures = Exposures::new();
        let draws: Vec<_> = keys().map(|key| Draw::of_key("sha256:0a", &key)).collect();
        let first: Vec<_> = draws.iter().filter(|draw| exposures.first(**draw)).collect();
        assert!(first.len() > KEYS * 9 / 10, "{}", first.len());
        assert!(draws.iter().all(|draw| !exposures.first(*draw)));
        let canary = first.iter().filter(|draw| draw.arm(share(0.1)) == Arm::Canary).count();
        assert_binomial(canary, first.len(), 0.1);
    }

    #[test]
    fn keys_are_seen_on_the_canary_apart_from_those_that_are_seen_at_all() {
        let exposures = Exposures::new();
        let draws: Vec<_> = keys().map(|key| Draw::of_key("sha256:0a", &key)).collect();
        let moved = &draws[..KEYS / 10];
        let first = moved.iter().filter(|draw| exposures.first_on_canary(**draw)).count();
        assert!(first > moved.len() * 9 / 10, "{first}");
        assert!(moved.iter().all(|draw| !exposures.first_on_canary(*draw)));
        // A key's two places have nothing to do with each other.
        let seen = |draws: &[Draw]| draws.iter().filter(|draw| exposures.first(**draw)).count();
        assert_binomial(seen(moved), moved.len(), 0.9858);
    }

    #[test]
    fn keys_stay_seen_in_a_later_process() {
        let exposures = Exposures::new();
        let draws: Vec<_> = keys().map(|key| Draw::of_key("sha256:0a", &key)).collect();
        let (before, after) = draws.split_at(KEYS / 2);
        assert!(before.iter().filter(|draw| exposures.first(**draw)).count() > KEYS * 4 / 10);
        let written = serde_json::to_string(&exposures).unwrap();
        let later: Exposures = serde_json::from_str(&written).unwrap();
        assert!(before.iter().all(|draw| !later.first(*draw)));
        assert!(after.iter().filter(|draw| later.first(**draw)).count() > KEYS * 4 / 10);
        for wrong in ["\"\"", "\"AAAA\"", "\"?\"", "[]"] {
            assert!(serde_json::from_str::<Exposures>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_that_fall_close_together_are_told_apart() {
        // All of them on the canary while it has a millionth.
        let exposures = Exposures::new();
        let first = (0..1000).filter(|bits| exposures.first(Draw::at_random(*bits))).count();
        assert!(first > 990, "{first}");
    }
}
