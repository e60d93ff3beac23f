//! The experiment that finds out whether the canary makes live far worse.
//!
//! After live became far worse, the canary gets no requests. If live is then as before,
//! the canary gets requests again in single slots of time, which are drawn at random. If
//! the canary does not matter to live, then live does not become far worse in these slots
//! more often than in others, at whatever times it does so for other reasons. Each slot in
//! which it does is a bet on the draw, so the wealth is an e-process, as in the tests that
//! compare the arms.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// The probability with which a slot is a probe: the canary gets requests in it.
const PROBE: f64 = 1.0 / 16.0;
/// The bet: a slot in which live becomes far worse is a probe with this probability.
const BET: f64 = 0.95;
/// Periods after those with the canary in which live is not judged, because the engine may
/// still work for the canary.
const REST: u32 = 3;
/// The most periods of a slot.
const LONGEST: u32 = 64;

/// The outcomes of the slots.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Slots with requests for the canary.
    pub with: Slots,
    /// Slots without.
    pub without: Slots,
    /// The number of times that the canary's requests were stopped.
    pub pauses: u64,
    /// The number of pauses that followed probes in which live was as before.
    relapses: u32,
    /// The logarithm of the wealth.
    evidence: f64,
}

/// A number of slots, and of those in which live became far worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// The slots.
    pub all: u64,
    /// Those in which live became far worse.
    pub bad: u64,
}

/// Switches the canary's requests off and on, period by period.
#[derive(Debug)]
pub(super) struct Switch {
    state: State,
    probes: Probes,
    random: Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The canary gets its share. `is_tried`: after a probe in which live was as before.
    On { is_tried: bool },
    /// The canary gets nothing, and live is not judged for so many periods.
    Rest { left: u32, then: Then },
    /// The canary gets nothing, and the period shows whether live has recovered.
    Alone,
    /// A slot of the experiment, with so many periods left.
    Slot { is_probe: bool, left: u32 },
}

/// The state after a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Alone,
    Slot,
}

/// The state in which the canary is held back, and live has to recover.
const REST_AND_RECOVER: State = State::Rest { left: REST, then: Then::Alone };

impl Probes {
    /// True if it is proved that the canary makes live far worse. For a canary that does
    /// not, this ever becomes true with at most the probability `error`.
    pub(crate) fn are_harmful(&self, error: f64) -> bool {
        self.evidence >= -error.ln()
    }

    fn count(&mut self, is_probe: bool, is_bad: bool) {
        let slots = if is_probe { &mut self.with } else { &mut self.without };
        slots.all += 1;
        if is_bad {
            slots.bad += 1;
            let odds = if is_probe { BET / PROBE } else { (1.0 - BET) / (1.0 - PROBE) };
            self.evidence += odds.ln();
        }
    }
}

/// The outcomes in words.
impl fmt::Display for Probes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { with, without, .. } = self;
        write!(
            f,
            "live was far worse than before the split in {} of {} probes with the canary, and in \
             {} of {} without it",
            with.bad, with.all, without.bad, without.all
        )
    }
}

impl Switch {
    /// The canary gets its share.
    pub(super) fn new(seed: u64) -> Self {
        Self::resume(Probes::default(), false, seed)
    }

    /// Continues after these probes. `is_open`: the canary was held back.
    pub(super) fn resume(probes: Probes, is_open: bool, seed: u64) -> Self {
        let state = if is_open { REST_AND_RECOVER } else { State::On { is_tried: false } };
        Self { state, probes, random: Random::new(seed) }
    }

    pub(super) fn probes(&self) -> &Probes {
        &self.probes
    }

    /// True if the canary gets requests in the present period.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.state, State::On { .. } | State::Slot { is_probe: true, .. })
    }

    /// True if no experiment is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self.state, State::On { .. })
    }

    /// Stops the canary's requests.
    fn open(&mut self, is_tried: bool) {
        self.probes.pauses += 1;
        self.probes.relapses += u32::from(is_tried);
        self.state = REST_AND_RECOVER;
    }

    /// Ends a period, in which live was far worse than at its level or not. Returns true if
    /// live was far worse without the canary: then this becomes its level.
    pub(super) fn end_period(&mut self, is_bad: bool) -> bool {
        match self.state {
            State::On { is_tried } if is_bad => self.open(is_tried),
            State::On { .. } => {}
            State::Rest { left: left @ 2.., then } => {
                self.state = State::Rest { left: left - 1, then };
            }
            State::Rest { then: Then::Alone, .. } => self.state = State::Alone,
            State::Rest { then: Then::Slot, .. } => self.next_slot(),
            // Live is as bad without the canary: the pause has shown nothing against it.
            State::Alone if is_bad => {
                self.state = State::On { is_tried: false };
                return true;
            }
            State::Alone => self.next_slot(),
            State::Slot { is_probe, left: left @ 2.. } if !is_bad => {
                self.state = State::Slot { is_probe, left: left - 1 };
            }
            State::Slot { is_probe, .. } => {
                self.end_slot(is_probe, is_bad);
                return is_bad && !is_probe;
            }
        }
        false
    }

    fn end_slot(&mut self, is_probe: bool, is_bad: bool) {
        self.probes.count(is_probe, is_bad);
        match (is_probe, is_bad) {
            (true, true) => self.state = State::Rest { left: REST, then: Then::Slot },
            (true, false) => self.state = State::On { is_tried: true },
            (false, true) => self.state = State::On { is_tried: false },
            (false, false) => self.next_slot(),
        }
    }

    /// Draws whether the next slot is a probe. Slots are longer after probes in which live
    /// was as before, if it became far worse later.
    fn next_slot(&mut self) {
        let is_probe = self.random.happens(PROBE);
        let left = 1_u32.checked_shl(self.probes.relapses).unwrap_or(LONGEST).clamp(1, LONGEST);
        self.state = State::Slot { is_probe, left };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Half of the default error of the judge.
    const ERROR: f64 = 0.005;

    fn switch(seed: u64) -> Switch {
        Switch::new(seed)
    }

    /// Lets periods pass until the condition holds, or at most so many; returns those with
    /// the canary in which live was far worse. `is_bad` gets the number of the period, and
    /// true if the canary gets requests.
    fn run(
        switch: &mut Switch,
        most: u64,
        is_bad: impl Fn(u64, bool) -> bool,
        until: impl Fn(&Switch) -> bool,
    ) -> u64 {
        let mut bad = 0;
        for period in 0..most {
            if until(switch) {
                break;
            }
            let is_bad = is_bad(period, switch.is_on());
            bad += u64::from(is_bad && switch.is_on());
            switch.end_period(is_bad);
        }
        bad
    }

    #[test]
    fn a_canary_that_makes_live_worse_is_convicted_by_two_probes() {
        for seed in 0..100 {
            let mut switch = switch(seed);
            let bad = run(&mut switch, 10_000, |_, is_on| is_on, |it| it.probes.are_harmful(ERROR));
            assert_eq!(bad, 3, "the first period, and two probes");
            assert_eq!(switch.probes.with, Slots { all: 2, bad: 2 });
            assert_eq!((switch.probes.without.bad, switch.probes.pauses), (0, 1));
        }
    }

    #[test]
    fn a_live_that_is_worse_by_itself_gets_its_canary_back() {
        let mut switch = switch(1);
        switch.end_period(true);
        assert!(!switch.is_on() && !switch.is_at_rest());
        let raised = (0..=REST).map(|_| switch.end_period(true)).filter(|it| *it).count();
        assert!(switch.is_on() && switch.is_at_rest());
        assert_eq!((raised, switch.probes.with.all), (1, 0));
    }

    #[test]
    fn a_live_that_was_worse_once_gets_its_canary_back_after_a_probe() {
        let mut switch = switch(1);
        run(&mut switch, 10_000, |period, _| period == 0, |it| it.probes.with.all == 1);
        assert!(switch.is_at_rest() && !switch.probes.are_harmful(ERROR));
        assert_eq!(switch.probes.with.bad, 0);
    }

    #[test]
    fn a_canary_that_makes_live_worse_after_a_while_is_convicted_by_longer_probes() {
        let mut switch = switch(3);
        // Live becomes worse in the fourth period in a row with the canary.
        let mut on = 0;
        for _ in 0..100_000 {
            on = if switch.is_on() { on + 1 } else { 0 };
            switch.end_period(on >= 4);
            if switch.probes.are_harmful(ERROR) {
                break;
            }
        }
        assert!(switch.probes.are_harmful(ERROR), "{:?}", switch.probes);
        assert!(switch.probes.pauses <= 4, "{:?}", switch.probes);
    }

    #[test]
    fn bursts_that_the_canary_does_not_cause_hardly_ever_convict_it() {
        const SEEDS: u64 = 4000;
        for (begins, ends) in [(0.02, 0.1), (0.02, 0.9), (0.2, 0.5), (0.5, 0.5)] {
            let convicted = (0..SEEDS).filter(|seed| {
                let (mut bursts, mut switch) = (Random::new(*seed), switch(seed ^ 0x5eed));
                let mut is_bad = false;
                for _ in 0..3000 {
                    is_bad ^= bursts.happens(if is_bad { ends } else { begins });
                    switch.end_period(is_bad);
                }
                switch.probes.are_harmful(ERROR)
            });
            let (convicted, most) = (convicted.count() as f64, ERROR * SEEDS as f64);
            // Three standard deviations are allowed beyond the bound.
            let most = most + 3.0 * most.sqrt();
            assert!(convicted <= most, "{convicted} of {SEEDS}: {begins}, {ends}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn no_course_of_live_convicts_a_canary_that_does_not_cause_it(
            course in prop::collection::vec(any::<bool>(), 1..300),
        ) {
            let convicted = (0..1000).filter(|seed| {
                let mut switch = switch(*seed);
                let periods = course.iter().cycle().take(1500);
                for is_bad in periods {
                    switch.end_period(*is_bad);
                }
                switch.probes.are_harmful(ERROR)
            });
            // The bound is 5 of 1,000; more than 15 are as good as impossible by chance.
            prop_assert!(convicted.count() <= 15);
        }
    }
}
