//! Bisection for the highest rate that is held.

/// Precision of the rate, as a factor.
const PRECISION: f64 = 1.03;
/// Factor between rates until one is held and one is not.
const GROWTH: f64 = 1.3;
/// The lowest rate that is tried, in requests a second.
const LEAST: f64 = 0.1;
/// Maximum number of times that a rate is lowered because it does not last.
const LOWERED: usize = 4;

/// Bounds of the rate.
#[derive(Debug, Default)]
struct Bounds {
    /// The highest rate that was held.
    low: Option<f64>,
    /// Higher rates that were not held, highest first, with the number of failed trials.
    high: Vec<(f64, usize)>,
}

impl Bounds {
    fn learn(&mut self, rate: f64, held: bool) {
        match self.high.last_mut() {
            Some((lowest, times)) if *lowest == rate && !held => *times += 1,
            _ if !held => self.high.push((rate, 1)),
            _ => {
                self.high.retain(|(high, _)| *high > rate);
                self.low = Some(rate);
            }
        }
    }

    /// The next rate to try; `None` if the rate is known. A rate that failed once may
    /// have been disturbed, so it is tried again before it bounds the result.
    fn next(&self) -> Option<f64> {
        match (self.low, self.high.last()) {
            (None, None) => None,
            (None, Some((high, _))) => Some(high / GROWTH).filter(|rate| *rate >= LEAST),
            (Some(low), None) => Some(low * GROWTH),
            (Some(low), Some((high, _))) if apart(low, *high) => Some(middle(low, *high)),
            (Some(_), Some((high, times))) => (*times == 1).then_some(*high),
        }
    }
}

/// The highest rate for which `holds` is true, with a precision of 3 percent, starting at
/// `first`. `None` if even one request in ten seconds is too much. Assumes that a rate
/// holds if a higher one does.
///
/// # Errors
/// The first error of `holds`.
pub(crate) fn highest<E>(
    first: f64,
    mut holds: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Option<f64>, E> {
    let mut bounds = Bounds::default();
    let mut next = Some(first.max(LEAST));
    while let Some(rate) = next {
        bounds.learn(rate, holds(rate)?);
        next = bounds.next();
    }
    Ok(bounds.low)
}

/// The first rate for which `lasts` is true, starting at `found` and lowering it by 3
/// percent, then by growing steps. `None` if a rate lower by a third does not last
/// either.
///
/// # Errors
/// The first error of `lasts`.
pub(crate) fn lasting<E>(
    found: f64,
    mut lasts: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Option<f64>, E> {
    let (mut rate, mut factor) = (found, PRECISION);
    for _ in 0..LOWERED {
        if lasts(rate)? {
            return Ok(Some(rate));
        }
        (rate, factor) = (rate / factor, factor * factor);
    }
    Ok(lasts(rate)?.then_some(rate))
}

fn apart(low: f64, high: f64) -> bool {
    // The product of several factors is not exact.
    high / low > PRECISION * 1.000_001
}

fn middle(low: f64, high: f64) -> f64 {
    (low * high).sqrt()
}

#[cfg(test)]
mod tests;
