//! The places of hosts as a caller sets them that looks at the hosts by itself, beside those that the
//! results of calls decide.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{Client, ModelRef};

impl Client {
    /// Takes the host numbered `host` out of rotation while it answers nothing. If no host is in
    /// rotation, all get calls.
    pub fn set_away(&self, host: usize, is_away: bool) {
        self.hosts().set_away(host, is_away);
    }

    /// Takes the host numbered `host` out of rotation for a model that it does not have.
    pub fn set_absent(&self, host: usize, model: ModelRef<'_>, is_absent: bool) {
        self.hosts().set_absent(host, &model.key(), is_absent);
    }

    /// Forgets a model that gets no calls any more at the host numbered `host`.
    pub fn forget(&self, host: usize, model: ModelRef<'_>) {
        self.hosts().forget(host, &model.key());
    }

    /// Waits until a call at the host numbered `host` fails as if the host were away, or lacked the
    /// model, or until it is withdrawn or returns. One such event is kept while nobody waits.
    pub async fn suspected(&self, host: usize) {
        self.hosts().suspected(host).await;
    }

    /// The time of the last inference that the host numbered `host` answered.
    pub fn answered(&self, host: usize) -> Option<Instant> {
        self.hosts().last_answer(host)
    }

    /// The names of the models whose calls the host numbered `host` does not get because it failed
    /// some.
    pub fn withdrawn(&self, host: usize) -> Vec<Arc<str>> {
        self.hosts().ejected(host)
    }
}
