//! The requests and tokens that hosts get, within the limits of a job.

use std::collections::BTreeMap;

use outrigger_core::Moment;
use outrigger_dispatch::{Hold, HostId, RateCap};

use crate::job::Quota;

const SECONDS_OF_MINUTE: f64 = 60.0;

/// The accounts of all hosts. The tokens of a request are estimated when it is sent, and corrected
/// when it has ended.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    limits: Quota,
    hosts: BTreeMap<HostId, Account>,
}

/// The account of one host.
#[derive(Debug)]
struct Account {
    requests: RateCap,
    tokens: RateCap,
    in_flight: u64,
    /// The tokens that were used so far, as the host has counted them.
    used: u64,
}

impl Account {
    fn new(now: Moment) -> Self {
        Self { requests: RateCap::new(now), tokens: RateCap::new(now), in_flight: 0, used: 0 }
    }

    /// The bound of the host until something changes.
    fn hold(&self, limits: &Quota, now: Moment) -> Hold {
        let most = limits.tokens_in_flight.map(u64::from);
        if most.is_some_and(|most| self.in_flight >= most) {
            return Hold::Closed;
        }
        let requests = self.requests.wait(a_second(limits.requests_per_minute), now);
        let tokens = self.tokens.wait(a_second(limits.tokens_per_minute), now);
        requests.max(tokens).map_or(Hold::None, Hold::Until)
    }
}

/// The rate of a second, from that of a minute.
fn a_second(a_minute: Option<u32>) -> Option<f64> {
    a_minute.map(|amount| f64::from(amount) / SECONDS_OF_MINUTE)
}

impl Quotas {
    /// Sets the limits of each host. Returns the bounds of all of them.
    pub(crate) fn set(&mut self, limits: Quota, now: Moment) -> Vec<(HostId, Hold)> {
        self.limits = limits;
        self.hosts.iter().map(|(host, account)| (*host, account.hold(&limits, now))).collect()
    }

    /// Forgets all other hosts that have no request in flight.
    pub(crate) fn keep(&mut self, hosts: &[HostId]) {
        self.hosts.retain(|host, account| hosts.contains(host) || account.in_flight > 0);
    }

    fn account(&mut self, host: HostId, now: Moment) -> &mut Account {
        self.hosts.entry(host).or_insert_with(|| Account::new(now))
    }

    /// Counts a request that is sent now, with its estimated tokens. Returns the host's bound.
    pub(crate) fn sent(&mut self, host: HostId, tokens: u64, now: Moment) -> Hold {
        let limits = self.limits;
        let account = self.account(host, now);
        account.requests.take(1.0, a_second(limits.requests_per_minute), now);
        account.tokens.take(tokens as f64, a_second(limits.tokens_per_minute), now);
        account.in_flight = account.in_flight.saturating_add(tokens);
        account.hold(&limits, now)
    }

    /// Counts the end of a request with these estimated tokens. `used` are those that it took, if
    /// they are known. Returns the host's bound.
    pub(crate) fn ended(
        &mut self,
        host: HostId,
        (estimated, used): (u64, Option<u64>),
        now: Moment,
    ) -> Hold {
        let limits = self.limits;
        let account = self.account(host, now);
        account.in_flight = account.in_flight.saturating_sub(estimated);
        let used = used.unwrap_or(estimated);
        account.used = account.used.saturating_add(used);
        let more = used as f64 - estimated as f64;
        account.tokens.take(more, a_second(limits.tokens_per_minute), now);
        account.hold(&limits, now)
    }

    /// The tokens that a host has used so far.
    pub(crate) fn used(&self, host: HostId) -> u64 {
        self.hosts.get(&host).map_or(0, |account| account.used)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOST: HostId = HostId(0);

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_millis(millis))
    }

    fn quotas(limits: Quota) -> Quotas {
        let mut quotas = Quotas::default();
        assert_eq!(quotas.set(limits, at(0)), []);
        quotas
    }

    /// The requests of `tokens` tokens, `used` in truth, that a host gets in 10 minutes.
    fn sent_in_ten_minutes(limits: Quota, tokens: u64, used: Option<u64>) -> u64 {
        let (mut quotas, mut now, mut sent) = (quotas(limits), at(0), 0);
        while now < at(600_000) {
            quotas.sent(HOST, tokens, now);
            sent += 1;
            match quotas.ended(HOST, (tokens, used), now) {
                Hold::None => now = now + Duration::from_millis(1),
                Hold::Until(end) => now = end,
                Hold::Closed => panic!("nothing is in flight"),
            }
        }
        sent
    }

    #[test]
    fn limits_hold_on_average() {
        let requests = Quota { requests_per_minute: Some(30), ..Quota::default() };
        let sent = sent_in_ten_minutes(requests, 1000, None);
        assert!((299..=302).contains(&sent), "{sent}");
        let tokens = Quota { tokens_per_minute: Some(6000), ..Quota::default() };
        let sent = sent_in_ten_minutes(tokens, 100, None);
        assert!((599..=602).contains(&sent), "{sent}");
        // The scarcer one decides.
        let both = Quota { tokens_per_minute: Some(600), ..requests };
        let sent = sent_in_ten_minutes(both, 100, None);
        assert!((59..=62).contains(&sent), "{sent}");
    }

    #[test]
    fn estimates_are_corrected_by_what_was_used() {
        let tokens = Quota { tokens_per_minute: Some(6000), ..Quota::default() };
        let sent = sent_in_ten_minutes(tokens, 1000, Some(100));
        assert!((599..=602).contains(&sent), "{sent}");
        let sent = sent_in_ten_minutes(tokens, 10, Some(100));
        assert!((599..=602).contains(&sent), "{sent}");
        let mut quotas = quotas(tokens);
        quotas.sent(HOST, 1000, at(0));
        quotas.ended(HOST, (1000, Some(7)), at(1));
        quotas.ended(HOST, (5, None), at(1));
        assert_eq!([quotas.used(HOST), quotas.used(HostId(1))], [12, 0]);
    }

    #[test]
    fn a_host_with_enough_tokens_in_flight_gets_no_more() {
        let limits = Quota { tokens_in_flight: Some(100), ..Quota::default() };
        let mut quotas = quotas(limits);
        assert_eq!(quotas.sent(HOST, 60, at(0)), Hold::None);
        assert_eq!(quotas.sent(HOST, 60, at(0)), Hold::Closed);
        assert_eq!(quotas.sent(HostId(1), 60, at(0)), Hold::None);
        // It was removed and is there again: its requests in flight still count.
        quotas.keep(&[HostId(1)]);
        assert_eq!(quotas.ended(HOST, (60, None), at(1)), Hold::None);
        // One that is larger than the limit is sent alone.
        assert_eq!(quotas.ended(HOST, (60, None), at(1)), Hold::None);
        assert_eq!(quotas.sent(HOST, 1000, at(1)), Hold::Closed);
        quotas.keep(&[HostId(1)]);
        let changed = quotas.set(Quota { tokens_in_flight: Some(2000), ..limits }, at(2));
        assert_eq!(changed, [(HOST, Hold::None), (HostId(1), Hold::None)]);
        assert_eq!(quotas.ended(HOST, (1000, None), at(3)), Hold::None);
        quotas.keep(&[HostId(1)]);
        assert_eq!(quotas.used(HOST), 0);
    }

    #[test]
    fn a_job_without_limits_has_no_bounds() {
        let mut quotas = quotas(Quota::default());
        assert_eq!(quotas.sent(HOST, u64::MAX, at(0)), Hold::None);
        assert_eq!(quotas.sent(HOST, u64::MAX, at(0)), Hold::None);
        assert_eq!(quotas.ended(HOST, (u64::MAX, None), at(0)), Hold::None);
    }
}
