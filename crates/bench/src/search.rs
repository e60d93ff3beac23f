//! The search for the highest rate that is held.

/// A rate is told to this factor.
const PRECISION: f64 = 1.03;
/// From step to step, until the rate lies between two.
const GROWTH: f64 = 1.3;
/// Nobody asks for less, in requests a second.
const LEAST: f64 = 0.1;
/// How often a rate is lowered that did not last.
const LOWERED: usize = 4;

/// What is known of the rate that is searched for.
#[derive(Debug, Default)]
struct Bounds {
    /// The highest rate that has held.
    low: Option<f64>,
    /// Higher ones that have not, from the highest down, and how often.
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

    /// What to try next; none if the rate is known. What has not held once may have
    /// been disturbed: before it bounds what is told, it is tried again.
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
    let mut bounds = Bounds::default();
    let mut next = Some(first.max(LEAST));
    while let Some(rate) = next {
        bounds.learn(rate, holds(rate)?);
        next = bounds.next();
    }
    Ok(bounds.low)
}

/// The first rate that `lasts`, from `found` down: by 3 percent, and by ever more while it
/// does not. None if a third less does not last either.
///
/// # Errors
/// The first of `lasts`.
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
    // Products of the factor are not exact.
    high / low > PRECISION * 1.000_001
}

fn middle(low: f64, high: f64) -> f64 {
    (low * high).sqrt()
}

#[cfg(test)]
mod tests;
