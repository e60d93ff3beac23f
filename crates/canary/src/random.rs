//! Reproducible random numbers.

use std::sync::LazyLock;

/// A generator of random numbers: xoshiro256++ (Blackman & Vigna 2021), seeded by
/// splitmix64.
#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let bits = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        bits
    }

    /// Uniform on the open interval from 0 to 1.
    pub fn uniform(&mut self) -> f64 {
        between_0_and_1(self.bits())
    }

    /// Returns true with this probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A random integer from 0 to `count - 1`.
    pub fn below(&mut self, count: usize) -> usize {
        (self.uniform() * count as f64) as usize
    }

    /// A Beta(2, 5) number: the second smallest of six uniform numbers.
    pub fn beta_2_5(&mut self) -> f64 {
        let (mut least, mut second) = (u32::MAX, u32::MAX);
        for _ in 0..3 {
            let bits = self.bits();
            for number in [bits as u32, (bits >> 32) as u32] {
                second = second.min(number.max(least));
                least = least.min(number);
            }
        }
        (f64::from(second) + 0.5) / (f64::from(u32::MAX) + 1.0)
    }

    /// A standard normal number, by the ziggurat (Marsaglia & Tsang 2000, in the form of
    /// Doornik 2005).
    pub fn normal(&mut self) -> f64 {
        let edges = &*EDGES;
        loop {
            let bits = self.bits();
            let layer = (bits & 127) as usize;
            let (outer, inner) = (edges[layer], edges[layer + 1]);
            let x = (2.0 * between_0_and_1(bits) - 1.0) * outer;
            if x.abs() < inner {
                return x;
            }
            if layer == 0 {
                return self.normal_tail().copysign(x);
            }
            let above = |edge: f64| (-0.5 * (edge * edge - x * x)).exp();
            if above(inner) + self.uniform() * (above(outer) - above(inner)) < 1.0 {
                return x;
            }
        }
    }

    /// A normal number from beyond the lowest layer (Marsaglia 1964).
    fn normal_tail(&mut self) -> f64 {
        loop {
            let x = -self.uniform().ln() / TAIL;
            if -2.0 * self.uniform().ln() >= x * x {
                return TAIL + x;
            }
        }
    }
}

fn between_0_and_1(bits: u64) -> f64 {
    ((bits >> 11) as i64 as f64 + 0.5) / (1u64 << 53) as f64
}

/// The right end of the lowest of the 128 layers, where the tail begins.
const TAIL: f64 = 3.442_619_855_899;

/// The area of each layer under exp(-x²/2).
const AREA: f64 = 9.912_563_035_262_17e-3;

/// Right edges of the layers from the lowest upwards; the lowest also covers the tail.
static EDGES: LazyLock<[f64; 129]> = LazyLock::new(|| {
    let density = |x: f64| (-0.5 * x * x).exp();
    let mut edges = [0.0; 129];
    edges[0] = AREA / density(TAIL);
    edges[1] = TAIL;
    for layer in 2..128 {
        let below = edges[layer - 1];
        edges[layer] = (-2.0 * (AREA / below + density(below)).ln()).sqrt();
    }
    edges
});

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 1_000_000;

    /// Asserts the share of draws below each point, within four standard errors.
    fn assert_distribution(draw: impl Fn(&mut Random) -> f64, points: &[(f64, f64)]) {
        let mut random = Random::new(1);
        let draws: Vec<f64> = (0..DRAWS).map(|_| draw(&mut random)).collect();
        for (point, expected) in points {
            let seen = draws.iter().filter(|x| *x < point).count() as f64 / DRAWS as f64;
            let error = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
            assert!((seen - expected).abs() < 4.0 * error, "{point}: {seen}, not {expected}");
        }
    }

    #[test]
    fn normal_numbers_are_normal() {
        let points = [
            (-3.5, 2.326_290_790_355_401e-4),
            (-2.0, 0.022_750_131_948_179_21),
            (-0.5, 0.308_537_538_725_986_9),
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (3.5, 0.999_767_370_920_964_5),
        ];
        assert_distribution(Random::normal, &points);
    }

    #[test]
    fn beta_numbers_are_beta() {
        // Probability that at least two of six uniform numbers are below x.
        let cdf = |x: f64| 1.0 - (1.0 - x).powi(6) - 6.0 * x * (1.0 - x).powi(5);
        let points = [0.05, 0.2, 0.5, 0.8].map(|x| (x, cdf(x)));
        assert_distribution(Random::beta_2_5, &points);
    }

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = |seed| Random::new(seed).bits();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
