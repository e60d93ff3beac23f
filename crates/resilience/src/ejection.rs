//! The withdrawal of hosts that fail their calls.

use std::{collections::VecDeque, time::Duration};

use outrigger_core::Moment;

use crate::{Backoff, Class};

/// The settings of the withdrawal of hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EjectionSettings {
    /// Failures in a row after which a host is ejected.
    pub consecutive: u32,
    /// The share of successes, of the calls in the window, below which a host is ejected.
    pub least: f64,
    /// The calls in the window from which the share counts.
    pub sample: usize,
    /// The length of the window.
    pub window: Duration,
    /// The time until a host is tried again, which doubles with each failed trial.
    pub pause: Backoff,
}

/// The end of a call, as far as it says something about its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The host answered.
    Success,
    /// The host had too much work. That counts for its share of successes, and not as one of
    /// several failures in a row.
    Overload,
    /// The host failed.
    Failure,
}

/// The place of a host among those that get calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It gets calls.
    In,
    /// It gets one call as a trial.
    Trial,
    /// It gets none until this moment.
    Out(Moment),
}

/// Withdraws a host by the results of its own calls: servers report to be ready while every call
/// fails, so no health request is asked. After a pause one call is the trial of its return.
#[derive(Debug, Clone)]
pub struct Ejection {
    settings: EjectionSettings,
    calls: VecDeque<(Moment, bool)>,
    in_a_row: u32,
    ejected: Option<Ejected>,
}

#[derive(Debug, Clone, Copy)]
struct Ejected {
    until: Moment,
    /// The number of times in a row, which sets the pause.
    times: u32,
    on_trial: bool,
}

/// The most calls that the window keeps.
const MOST: usize = 256;

impl Default for EjectionSettings {
    fn default() -> Self {
        Self {
            consecutive: 5,
            least: 0.5,
            sample: 20,
            window: Duration::from_secs(30),
            pause: Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) },
        }
    }
}

impl Outcome {
    /// The outcome for the host of a call that failed with this class, or succeeded. `None`: the
    /// call says nothing, because its message was refused.
    pub fn of(failure: Option<Class>) -> Option<Self> {
        match failure {
            None => Some(Self::Success),
            Some(Class::Refused | Class::TooLarge(_)) => None,
            Some(Class::Overloaded) => Some(Self::Overload),
            Some(Class::Unavailable | Class::Lost | Class::Timeout | Class::Ambiguous) => {
                Some(Self::Failure)
            }
        }
    }
}

impl Ejection {
    /// A host without calls.
    pub fn new(settings: EjectionSettings) -> Self {
        Self { settings, calls: VecDeque::new(), in_a_row: 0, ejected: None }
    }

    /// The place of the host.
    pub fn place(&self, now: Moment) -> Place {
        match self.ejected {
            None => Place::In,
            // The end of the trial decides.
            Some(Ejected { until, on_trial: true, .. }) => Place::Out(until.max(now)),
            Some(Ejected { until, .. }) if now < until => Place::Out(until),
            Some(_) => Place::Trial,
        }
    }

    /// Ends the pause before the next trial: the host has given a sign of life. Only a call decides
    /// about its return.
    pub fn may_return(&mut self, now: Moment) {
        if let Some(ejected) = &mut self.ejected {
            ejected.until = ejected.until.min(now);
        }
    }

    /// Starts the trial of an ejected host. [`Self::ended`] or [`Self::abandoned`] ends it.
    pub fn try_again(&mut self) {
        if let Some(ejected) = &mut self.ejected {
            ejected.on_trial = true;
        }
    }

    /// Ends a trial whose call was given up without a result: another call may be the trial.
    pub fn abandoned(&mut self) {
        if let Some(ejected) = &mut self.ejected {
            ejected.on_trial = false;
        }
    }

    /// True if the last call failed.
    pub fn is_failing(&self) -> bool {
        self.in_a_row > 0
    }

    /// Ejects the host at once: it has said that it cannot take such calls.
    /// `at` is the time, and a random number of [0, 1).
    pub fn withdraw(&mut self, at: (Moment, f64)) {
        let times = self.ejected.map_or(0, |ejected| ejected.times);
        self.eject(times + 1, at);
    }

    /// Takes the end of a call into account. `is_trial` is true for the call of a trial, and
    /// `jitter` a random number of [0, 1).
    pub fn ended(&mut self, outcome: Outcome, is_trial: bool, (now, jitter): (Moment, f64)) {
        if let Some(Ejected { times, .. }) = self.ejected {
            // A call that was sent before the ejection decides nothing.
            if is_trial {
                match outcome {
                    Outcome::Success => self.return_to_service(),
                    Outcome::Overload | Outcome::Failure => self.eject(times + 1, (now, jitter)),
                }
            }
            return;
        }
        self.in_a_row = match outcome {
            Outcome::Success => 0,
            Outcome::Overload => self.in_a_row,
            Outcome::Failure => self.in_a_row + 1,
        };
        self.record(outcome == Outcome::Success, now);
        if self.in_a_row >= self.settings.consecutive || self.is_below_share() {
            self.eject(1, (now, jitter));
        }
    }

    fn record(&mut self, success: bool, now: Moment) {
        let window = self.settings.window;
        while self.calls.front().is_some_and(|(at, _)| now.since(*at) > window)
            || self.calls.len() >= MOST
        {
            self.calls.pop_front();
        }
        self.calls.push_back((now, success));
    }

    fn is_below_share(&self) -> bool {
        let successes = self.calls.iter().filter(|(_, success)| *success).count();
        self.calls.len() >= self.settings.sample
            && (successes as f64) < self.settings.least * self.calls.len() as f64
    }

    fn eject(&mut self, times: u32, (now, jitter): (Moment, f64)) {
        let until = now + self.settings.pause.pause(times, jitter);
        self.ejected = Some(Ejected { until, times, on_trial: false });
    }

    fn return_to_service(&mut self) {
        self.ejected = None;
        self.in_a_row = 0;
        self.calls.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_millis(millis))
    }

    fn host() -> Ejection {
        Ejection::new(EjectionSettings::default())
    }

    fn end(host: &mut Ejection, outcome: Outcome, millis: u64) {
        host.ended(outcome, false, (at(millis), 1.0));
    }

    fn ejected() -> Ejection {
        let mut host = host();
        (0..5).for_each(|_| end(&mut host, Outcome::Failure, 0));
        host
    }

    #[test]
    fn check_38_a_host_that_fails_its_calls_is_ejected() {
        let mut host = host();
        for _ in 0..4 {
            end(&mut host, Outcome::Failure, 0);
            assert_eq!(host.place(at(0)), Place::In);
        }
        end(&mut host, Outcome::Failure, 0);
        assert_eq!(host.place(at(999)), Place::Out(at(1000)));
        assert_eq!(host.place(at(1000)), Place::Trial);
    }

    #[test]
    fn check_38_a_low_share_of_successes_ejects_too() {
        let mut host = host();
        for call in 0..19 {
            let outcome = if call % 3 == 0 { Outcome::Success } else { Outcome::Failure };
            end(&mut host, outcome, call);
        }
        assert_eq!(host.place(at(19)), Place::In, "the sample is too small");
        end(&mut host, Outcome::Failure, 19);
        assert!(matches!(host.place(at(19)), Place::Out(_)));
    }

    #[test]
    fn old_calls_leave_the_window() {
        let mut host = host();
        for _ in 0..9 {
            end(&mut host, Outcome::Failure, 0);
            end(&mut host, Outcome::Success, 0);
        }
        (0..15).for_each(|_| end(&mut host, Outcome::Overload, 31_000));
        assert_eq!(host.place(at(31_000)), Place::In, "fifteen calls are no sample");
    }

    #[test]
    fn check_38_the_trial_decides_about_the_return() {
        let mut host = ejected();
        host.try_again();
        assert!(matches!(host.place(at(1000)), Place::Out(_)), "one trial at a time");
        host.ended(Outcome::Failure, true, (at(1000), 1.0));
        assert_eq!(host.place(at(1000)), Place::Out(at(3000)), "the pause doubles");
        host.try_again();
        host.ended(Outcome::Success, false, (at(3000), 1.0));
        assert!(matches!(host.place(at(3000)), Place::Out(_)), "a call sent before the ejection");
        host.ended(Outcome::Success, true, (at(3000), 1.0));
        assert_eq!(host.place(at(3000)), Place::In);
    }

    #[test]
    fn check_38_a_sign_of_life_brings_the_trial_forward_and_decides_nothing() {
        let mut host = ejected();
        host.may_return(at(100));
        assert_eq!(host.place(at(100)), Place::Trial);
        host.try_again();
        host.may_return(at(150));
        assert!(matches!(host.place(at(200)), Place::Out(_)), "one trial at a time");
        host.ended(Outcome::Failure, true, (at(200), 1.0));
        assert_eq!(host.place(at(200)), Place::Out(at(2200)), "the pause doubles all the same");
        host.may_return(at(9000));
        assert_eq!(host.place(at(2200)), Place::Trial, "a later sign of life delays nothing");
    }

    #[test]
    fn check_39_an_overload_opens_nothing_at_once_and_fails_a_trial() {
        let mut host = host();
        (0..19).for_each(|_| end(&mut host, Outcome::Overload, 0));
        assert_eq!(host.place(at(0)), Place::In);
        let mut host = ejected();
        host.try_again();
        host.ended(Outcome::Overload, true, (at(1000), 1.0));
        assert_eq!(host.place(at(2000)), Place::Out(at(3000)));
    }

    #[test]
    fn a_host_that_cannot_take_a_call_is_ejected_at_once() {
        let mut host = host();
        host.withdraw((at(0), 1.0));
        assert_eq!(host.place(at(999)), Place::Out(at(1000)));
        host.try_again();
        host.withdraw((at(1000), 1.0));
        assert_eq!(host.place(at(1000)), Place::Out(at(3000)), "the pause doubles");
    }

    #[test]
    fn a_trial_without_a_result_is_made_again() {
        let mut host = ejected();
        host.try_again();
        host.abandoned();
        assert_eq!(host.place(at(1000)), Place::Trial);
    }

    #[test]
    fn refused_messages_say_nothing_about_the_host() {
        assert_eq!(Outcome::of(Some(Class::Refused)), None);
        assert_eq!(Outcome::of(Some(Class::Overloaded)), Some(Outcome::Overload));
        assert_eq!(Outcome::of(Some(Class::Ambiguous)), Some(Outcome::Failure));
        assert_eq!(Outcome::of(None), Some(Outcome::Success));
    }
}
