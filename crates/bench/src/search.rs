//! The search for the highest rate that is held.

/// A rate is told to this factor.
const PRECISION: f64 = 1.03;
/// From step to step, until the rate lies between two.
const GROWTH: f64 = 1.3;
/// Nobody asks for less, in requests a second.
const LEAST: f64 = 0.1;

/// The highest rate that `holds`, to 3 percent, tried from `first` on; none if
/// not even one request in ten seconds is held. Whatever holds is assumed to
/// hold at lower rates too.
///
/// # Errors
/// The first of `holds`.
pub(crate) fn highest<E>(
    first: f64,
    mut holds: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Option<f64>, E> {
    let mut low = first.max(LEAST);
    let mut high = low;
    if holds(low)? {
        loop {
            high *= GROWTH;
            if !holds(high)? {
                break;
            }
            low = high;
        }
    } else {
        loop {
            low /= GROWTH;
            if low < LEAST {
                return Ok(None);
            }
            if holds(low)? {
                break;
            }
            high = low;
        }
    }
    while high / low > PRECISION {
        let middle = (low * high).sqrt();
        if holds(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(low))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// What is found from `first` on where `capacity` is held, in how many steps.
    fn search(first: f64, capacity: f64) -> (Option<f64>, usize) {
        let mut steps = 0;
        let found = highest::<Infallible>(first, |rate| {
            steps += 1;
            Ok(rate <= capacity)
        });
        (found.unwrap(), steps)
    }

    #[test]
    fn a_capacity_is_found_from_above_and_from_below() {
        for first in [300.0, 900.0, 1000.0, 1100.0, 4000.0] {
            let (found, steps) = search(first, 1000.0);
            let found = found.unwrap();
            assert!((1000.0 / PRECISION..=1000.0).contains(&found), "{found} from {first}");
            assert!(steps <= 12, "{steps} from {first}");
        }
    }

    #[test]
    fn what_holds_nothing_has_no_rate() {
        assert_eq!(search(100.0, 0.0).0, None);
    }

    #[test]
    fn a_step_that_cannot_be_made_ends_the_search() {
        assert_eq!(highest(100.0, |_| Err("gone")), Err("gone"));
    }
}
