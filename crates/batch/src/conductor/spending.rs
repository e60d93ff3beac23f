//! The conductor's accounts of requests and tokens, for language models.

use outrigger_dispatch::{Call, HostId, Purpose};
use outrigger_oip_client::Request;
use outrigger_resilience::Class;

use super::{CallFailure, Conductor};
use crate::{Answer, Usage, job::Quota, language::tokens};

impl Conductor {
    /// Tests hosts with this request of one row, which was scored before.
    pub(crate) fn set_reference(&mut self, request: Request) {
        let tokens = tokens(&request);
        self.reference = Some((request, tokens));
        self.dispatcher.has_scored_row();
    }

    /// Sets the limits of each host in requests and tokens.
    pub(crate) fn set_quota(&mut self, quota: Quota) {
        for (host, hold) in self.quotas.set(quota, self.now()) {
            self.dispatcher.hold(host, hold);
        }
    }

    /// Counts a request that is sent. Returns its estimated tokens.
    pub(super) fn spend(&mut self, call: &Call) -> u64 {
        let tokens = match call.purpose {
            Purpose::Check => self.reference.as_ref().map(|(_, tokens)| *tokens),
            Purpose::Score | Purpose::Hedge => {
                self.batches.get(&call.batch).map(|open| open.batch.tokens)
            }
        };
        let tokens = tokens.unwrap_or(0);
        let hold = self.quotas.sent(call.host, tokens, self.now());
        self.dispatcher.hold(call.host, hold);
        tokens
    }

    /// Counts the end of a request with these estimated tokens, and obeys what its host asks for.
    pub(super) fn spent(&mut self, host: HostId, estimated: u64, usage: Usage) {
        let now = self.now();
        let hold = self.quotas.ended(host, (estimated, usage.tokens), now);
        self.dispatcher.hold(host, hold);
        if let Some(pause) = usage.pause {
            self.dispatcher.be_quiet(host, pause, now);
        }
    }
}

/// The tokens of a request by its end. One that its host has not processed took none; those of
/// another failure are not known.
pub(super) fn usage_of(result: &Result<Answer, CallFailure>) -> Usage {
    match result {
        Ok(answer) => answer.usage,
        Err(failure) => {
            let is_refused = matches!(
                failure.class,
                Class::Unavailable | Class::Overloaded | Class::Refused | Class::TooLarge(_)
            );
            Usage { tokens: is_refused.then_some(0), pause: None }
        }
    }
}
