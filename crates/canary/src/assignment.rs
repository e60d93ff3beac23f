//! Assigns requests to arms.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use outrigger_core::Arm;
use serde::{Deserialize, Serialize};

use crate::Share;

/// The secret that a trial draws with. A caller that knew it could choose routing keys by their
/// arms, and so make an arm look worse than the other. It is neither shown nor logged.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salt([u8; 32]);

impl Salt {
    /// The salt of all trials of those who have this secret.
    pub fn of_secret(secret: &[u8]) -> Self {
        Self(*blake3::hash(secret).as_bytes())
    }

    /// The salt of one trial. Trials whose names differ draw independently.
    #[must_use]
    pub fn of_trial(&self, name: &str) -> Self {
        Self(*blake3::keyed_hash(&self.0, name.as_bytes()).as_bytes())
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt")
    }
}

/// The random draw of a request: a number between 0 and 1, in units of 2^-64. Draws below
/// the canary's share go to the canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    /// The draw of a routing key. It is the same for the same salt and key in every
    /// process and on every machine, and nobody without the salt can compute it.
    pub fn of_key(salt: &Salt, routing_key: &str) -> Self {
        let hash = blake3::keyed_hash(&salt.0, routing_key.as_bytes());
        let (words, _) = hash.as_bytes().as_chunks();
        Self(u64::from_le_bytes(words[0]))
    }

    /// One of `count` places, independent of the arm.
    pub const fn place(self, count: u64) -> usize {
        (mixed(self.0) % count) as usize
    }

    /// The draw of a request without a routing key, from 64 random bits.
    pub const fn at_random(bits: u64) -> Self {
        Self(bits)
    }

    /// The arm when the canary has `share`. A larger share keeps all draws that the
    /// canary has.
    pub fn arm(self, share: Share) -> Arm {
        let millionth = (u128::from(self.0) * u128::from(Share::WHOLE)) >> 64;
        if millionth < u128::from(share.millionths()) { Arm::Canary } else { Arm::Live }
    }
}

/// The routing keys that were seen during a trial.
///
/// A user keeps the arm, so a user's second request is not an independent draw: a judge
/// that counted it would take one slow user on the canary for a slow canary. Only the
/// first request of each key is recorded. The set is a bit per key, found by hash; a key
/// whose bit is already taken counts as seen, independently of its arm.
///
/// Threads share it without a lock, and keys seen before cost no write. Its serialised
/// form, base64 of the bits, survives restarts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Exposures(Box<[AtomicU64]>);

/// The text is not base64 of [`Exposures::KEYS`] bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the set of routing keys does not have the expected form")]
pub struct InvalidExposures;

impl Exposures {
    /// Number of bits, and so the upper limit of keys that can be distinguished: 128 KiB.
    pub const KEYS: u64 = 1 << 20;

    /// The empty set.
    pub fn new() -> Self {
        Self((0..Self::KEYS / 64).map(|_| AtomicU64::new(0)).collect())
    }

    /// True if the key of this draw is seen for the first time.
    pub fn first(&self, draw: Draw) -> bool {
        let place = draw.place(Self::KEYS);
        let word = &self.0[place / 64];
        let bit = 1 << (place % 64);
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// True if the key of this draw is seen on an arm for the first time: live may have had
    /// a key of the canary while the share was smaller. Uses a further bit per key and arm.
    pub fn first_on(&self, arm: Arm, draw: Draw) -> bool {
        let on_canary = mixed(draw.0);
        self.first(Draw(if arm == Arm::Canary { on_canary } else { mixed(on_canary) }))
    }
}

impl Default for Exposures {
    fn default() -> Self {
        Self::new()
    }
}

/// A snapshot; it may lack keys that other threads add meanwhile.
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

/// The finalizer of splitmix64 (Steele, Lea & Flood 2014): every output bit depends on
/// every input bit.
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

    fn salt(secret: &str) -> Salt {
        Salt::of_secret(secret.as_bytes())
    }

    fn on_canary(secret: &str, share: Share) -> Vec<bool> {
        keys().map(|key| Draw::of_key(&salt(secret), &key).arm(share) == Arm::Canary).collect()
    }

    /// Asserts that `count` of `of` keys is within three standard deviations of a share.
    fn assert_binomial(count: usize, of: usize, share: f64) {
        let deviation = (of as f64 * share * (1.0 - share)).sqrt();
        let off = (count as f64 - of as f64 * share) / deviation;
        assert!(off.abs() < 3.0, "{count} of {of} at {share}: {off} deviations");
    }

    #[test]
    fn a_key_has_the_same_arm_in_every_release() {
        // Another hash would move users between the arms of a running trial.
        let salt = salt("a").of_trial("churn:latest");
        let draws = ["", "a", "user-1", "user-7", "Jürgen"].map(|key| Draw::of_key(&salt, key).0);
        let expected = [
            0x0cdf_beb7_25e7_452c,
            0x28ef_5bac_c34e_680a,
            0xdb10_7a80_60ac_7c42,
            0xb0d2_d6e1_7743_fd6a,
            0x21a6_9262_28d2_95f9,
        ];
        assert_eq!(draws, expected);
    }

    #[test]
    fn a_share_of_the_keys_is_on_the_canary() {
        for (secret, probability) in
            [("a", 0.001), ("b", 0.01), ("c", 0.1), ("d", 0.5), ("e", 0.99)]
        {
            let count =
                on_canary(secret, share(probability)).iter().filter(|canary| **canary).count();
            assert_binomial(count, KEYS, probability);
        }
    }

    #[test]
    fn a_growing_share_only_adds_keys() {
        let mut before = vec![false; KEYS];
        for probability in [0.01, 0.05, 0.1, 0.25, 0.5, 0.9] {
            let now = on_canary("a", share(probability));
            assert!(before.iter().zip(&now).all(|(before, now)| *now || !before));
            before = now;
        }
    }

    #[test]
    fn another_salt_draws_anew() {
        let [one, other] = ["a", "b"].map(|secret| on_canary(secret, share(0.1)));
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
        let draws: Vec<_> = keys().map(|key| Draw::of_key(&salt("a"), &key)).collect();
        let first: Vec<_> = draws.iter().filter(|draw| exposures.first(**draw)).collect();
        assert!(first.len() > KEYS * 9 / 10, "{}", first.len());
        assert!(draws.iter().all(|draw| !exposures.first(*draw)));
        let canary = first.iter().filter(|draw| draw.arm(share(0.1)) == Arm::Canary).count();
        assert_binomial(canary, first.len(), 0.1);
    }

    #[test]
    fn keys_are_seen_on_an_arm_apart_from_those_that_are_seen_at_all() {
        let exposures = Exposures::new();
        let draws: Vec<_> = keys().map(|key| Draw::of_key(&salt("a"), &key)).collect();
        let moved = &draws[..KEYS / 10];
        let first = |arm| moved.iter().filter(|draw| exposures.first_on(arm, **draw)).count();
        for arm in [Arm::Live, Arm::Canary] {
            let seen = first(arm);
            assert!(seen > moved.len() * 9 / 10, "{seen}");
            assert_eq!(first(arm), 0);
        }
        // A key's bits are independent of each other.
        let seen = |draws: &[Draw]| draws.iter().filter(|draw| exposures.first(**draw)).count();
        assert_binomial(seen(moved), moved.len(), 0.9764);
    }

    #[test]
    fn keys_stay_seen_in_a_later_process() {
        let exposures = Exposures::new();
        let draws: Vec<_> = keys().map(|key| Draw::of_key(&salt("a"), &key)).collect();
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
    fn nearby_draws_are_distinguished() {
        // All draws go to the canary at a share of one millionth.
        let exposures = Exposures::new();
        let first = (0..1000).filter(|bits| exposures.first(Draw::at_random(*bits))).count();
        assert!(first > 990, "{first}");
    }
}
