//! The attempts of one message.

use std::time::Duration;

use super::{Backoff, Class, Cut};

/// The hosts whose evidence against a message is enough to give it up as a whole.
const SUSPECTS: usize = 2;

/// The attempts of one message so far, and the decision about the next one. The message is judged by
/// evidence and not by one status: it is given up when two hosts failed on it.
#[derive(Debug, Clone)]
pub struct Attempts {
    backoff: Backoff,
    most: u32,
    made: u32,
    /// The hosts that failed in a way that may be the message's fault.
    suspects: Vec<usize>,
    /// The hosts that do not have the model.
    lacking: Vec<usize>,
    last: Option<usize>,
}

/// The decision after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Sends the message again, after this time.
    Retry(Duration),
    /// The message must be cut; the parts may be sent.
    Cut(Cut),
    /// The message is not sent again as a whole.
    Stop,
}

impl Attempts {
    /// Allows at most `most` attempts, with the pauses of `backoff` between them.
    pub fn new(backoff: Backoff, most: u32) -> Self {
        Self { backoff, most, made: 0, suspects: Vec::new(), lacking: Vec::new(), last: None }
    }

    /// Decides after a failure of the class `class` at `host`. `jitter` is a random number of
    /// [0, 1), and `asked` the pause that the host has asked for. `hosts` is the number of hosts.
    pub fn failed(
        &mut self,
        host: usize,
        class: Class,
        asked: Option<Duration>,
        (hosts, jitter): (usize, f64),
    ) -> Next {
        self.made += 1;
        self.last = Some(host);
        if class.may_be_the_message() && !self.suspects.contains(&host) {
            self.suspects.push(host);
        }
        match class {
            Class::TooLarge(cut) => return Next::Cut(cut),
            Class::Refused => return Next::Stop,
            _ => {}
        }
        let is_given_up = self.suspects.len() >= SUSPECTS.min(hosts);
        if is_given_up || self.made >= self.most {
            return Next::Stop;
        }
        // Another host, which has not failed, need not be spared.
        let is_other = (self.made as usize) < hosts && class != Class::Overloaded;
        let pause = self.backoff.pause(self.made, jitter);
        let pause = if is_other { Duration::ZERO } else { pause };
        Next::Retry(pause.max(asked.unwrap_or_default()))
    }

    /// Decides after the answer of `host`, one of `hosts`, that it does not have the model: another
    /// one is asked at once.
    pub fn lacks(&mut self, host: usize, hosts: usize) -> Next {
        self.last = Some(host);
        self.lacking.push(host);
        if self.lacking.len() < hosts { Next::Retry(Duration::ZERO) } else { Next::Stop }
    }

    /// True if the message may be sent to this host: the host has the model, as far as known, and the
    /// message has not failed there in a way that may be its own fault.
    pub fn admits(&self, host: usize) -> bool {
        !self.suspects.contains(&host) && !self.lacking.contains(&host)
    }

    /// The host of the last attempt: another one is preferred.
    pub fn last(&self) -> Option<usize> {
        self.last
    }

    /// The number of failed attempts.
    pub fn made(&self) -> u32 {
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: (usize, f64) = (3, 0.0);

    fn attempts() -> Attempts {
        Attempts::new(Backoff::default(), 5)
    }

    fn is_retry(next: Next) -> bool {
        matches!(next, Next::Retry(_))
    }

    #[test]
    fn check_33_a_message_that_failed_on_two_hosts_is_not_sent_again() {
        for class in [Class::Ambiguous, Class::Lost, Class::Timeout] {
            let mut attempts = attempts();
            assert!(is_retry(attempts.failed(0, class, None, HOSTS)), "{class:?}");
            assert!(!attempts.admits(0) && attempts.admits(1));
            assert_eq!(attempts.failed(1, class, None, HOSTS), Next::Stop, "{class:?}");
        }
    }

    #[test]
    fn hosts_that_did_not_process_the_message_are_no_evidence() {
        let mut attempts = attempts();
        for host in [0, 1, 2, 0] {
            assert!(is_retry(attempts.failed(host, Class::Unavailable, None, HOSTS)));
        }
        assert!(attempts.admits(0));
        assert_eq!(attempts.failed(1, Class::Overloaded, None, HOSTS), Next::Stop, "five attempts");
    }

    #[test]
    fn refusals_are_final_and_large_messages_are_cut() {
        assert_eq!(attempts().failed(0, Class::Refused, None, HOSTS), Next::Stop);
        let cut = Cut { rows: Some(4), bytes: None };
        assert_eq!(attempts().failed(0, Class::TooLarge(cut), None, HOSTS), Next::Cut(cut));
    }

    #[test]
    fn one_host_gets_a_doubtful_message_once() {
        assert_eq!(attempts().failed(0, Class::Ambiguous, None, (1, 0.0)), Next::Stop);
        assert!(is_retry(attempts().failed(0, Class::Unavailable, None, (1, 0.0))));
    }

    #[test]
    fn another_host_is_asked_at_once_and_the_same_one_after_a_pause() {
        let mut attempts = attempts();
        for host in [0, 1] {
            let next = attempts.failed(host, Class::Unavailable, None, (3, 1.0));
            assert_eq!(next, Next::Retry(Duration::ZERO));
        }
        let next = attempts.failed(2, Class::Unavailable, None, (3, 1.0));
        assert!(matches!(next, Next::Retry(pause) if pause > Duration::ZERO), "{next:?}");
    }

    #[test]
    fn a_host_without_the_model_is_not_asked_again_and_no_evidence() {
        let mut attempts = attempts();
        assert_eq!(attempts.lacks(0, 3), Next::Retry(Duration::ZERO));
        assert!(!attempts.admits(0) && attempts.admits(1));
        assert!(is_retry(attempts.failed(1, Class::Ambiguous, None, HOSTS)), "it is the first one");
        assert_eq!(attempts.lacks(2, 3), Next::Retry(Duration::ZERO));
        let mut attempts = super::Attempts::new(Backoff::default(), 5);
        assert!(is_retry(attempts.lacks(0, 2)));
        assert_eq!(attempts.lacks(1, 2), Next::Stop);
    }

    #[test]
    fn check_31_the_pause_is_at_least_what_the_host_asks() {
        let asked = Duration::from_secs(7);
        let next = attempts().failed(0, Class::Unavailable, Some(asked), HOSTS);
        assert_eq!(next, Next::Retry(asked));
    }
}
