//! The seed of a user's draws.

use std::hash::{BuildHasher as _, RandomState};

/// The seed of a user's draws: a function of the request's id, so that a request can be repeated; a
/// random number without an id.
pub(crate) fn seed(request_id: &str) -> i64 {
    match request_id {
        // Each of these hashers has keys of its own.
        "" => RandomState::new().hash_one(()).cast_signed(),
        id => farmhash::fingerprint64(id.as_bytes()).cast_signed(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_id_draws_the_same_and_requests_without_one_differ() {
        assert_eq!(seed("r-1"), seed("r-1"));
        assert_ne!(seed("r-1"), seed("r-2"));
        let drawn: BTreeSet<_> = (0..100).map(|_| seed("")).collect();
        assert_eq!(drawn.len(), 100);
    }
}
