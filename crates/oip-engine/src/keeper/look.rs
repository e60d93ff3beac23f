//! Looks at a server.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use outrigger_core::{Failure, Reason, ServableId};
use outrigger_oip_client::{self as client, Class};
use tokio::time::Instant;

use super::{Keeper, LOADS, State, held::Phase};
use crate::{
    fleet::{Away, Standing},
    framework::Remote,
    servers::unavailable,
};

/// The time for an answer to the question whether a server is live, and for one about a model that it
/// had. Two of them, the pause between them and the one before are less than the patience of
/// requests with an engine that hangs.
const ANSWER: Duration = Duration::from_millis(1500);
/// The questions about models at the same time.
const QUESTIONS: usize = 16;

impl Keeper {
    /// Asks the server whether it is live, and which models it has. Unless a look is due, it is asked
    /// only for those that are not known to be ready.
    pub(super) async fn look(&mut self, is_due: bool) {
        // A server that was away may have lost what it had.
        let is_due = is_due || self.state != State::Answers;
        let client = Arc::clone(&self.engine.client);
        let start = Instant::now();
        let live = client.is_live(self.server, start + ANSWER).await;
        let is_silent = live.as_ref().is_err_and(|failure| failure.class == Class::Timeout);
        let state = match live {
            Ok(true) => State::Answers,
            Ok(false) => {
                let message = format!("{} reports not to be live", self.name);
                self.away(Failure::new(Reason::EngineUnavailable, message))
            }
            // It may only have much to do.
            Err(_) if is_silent && client.answered(self.server) >= Some(start) => State::Answers,
            Err(_) if is_silent && self.state == State::Answers => State::Silent,
            Err(failure) if is_silent => {
                self.away(Failure::new(Reason::Deadline, failure.to_string()))
            }
            Err(failure) => self.away(unavailable(&failure)),
        };
        let answers = state == State::Answers;
        self.enter(state);
        if answers {
            self.answered = Some(self.clock.now());
            self.look_at_models(is_due).await;
        }
        self.asked = Instant::now();
        if is_due {
            self.looked = self.asked;
        }
    }

    /// The state of a server that does not answer. One that hangs has done so since its last answer.
    fn away(&self, failure: Failure) -> State {
        let since = match &self.state {
            State::Away(away) => Some(away.since),
            _ => self.answered.filter(|_| failure.reason == Reason::Deadline),
        };
        State::Away(Away { failure, since: since.unwrap_or_else(|| self.clock.now()) })
    }

    fn enter(&mut self, state: State) {
        let before = std::mem::replace(&mut self.state, state);
        match (&before, &self.state) {
            (State::Away(_), State::Away(_)) => {}
            (_, State::Away(Away { failure, .. })) => {
                tracing::warn!(
                    engine = %self.id, server = %self.name, %failure,
                    "a server does not answer; others get its calls"
                );
                self.engine.client.set_away(self.server, true);
            }
            (State::Away(_), State::Answers) => {
                tracing::info!(engine = %self.id, server = %self.name, "a server answers again");
            }
            _ => {}
        }
    }

    async fn look_at_models(&mut self, is_due: bool) {
        let asked = self.held.iter().filter(|(_, held)| {
            let is_open = is_due || held.standing != Standing::Ready;
            is_open && held.phase == Phase::Loaded && !held.is_leaving
        });
        let timeout = self.engine.settings.timeout;
        let asked: Vec<_> = asked
            .filter_map(|(id, held)| {
                // Without an answer, a model that was ready stays so.
                let time = if held.standing == Standing::Ready { ANSWER } else { timeout };
                Some((id.clone(), held.remote.clone()?, time))
            })
            .collect();
        let client = &self.engine.client;
        let server = self.server;
        let answers = asked.into_iter().map(|(id, remote, time)| async move {
            let deadline = Instant::now() + time;
            let ready = client.is_ready(server, remote.reference(), deadline).await;
            (id, remote, ready)
        });
        let answers: Vec<_> = stream::iter(answers).buffer_unordered(QUESTIONS).collect().await;
        for (id, remote, ready) in answers {
            self.seen(&id, &remote, ready);
        }
    }

    /// Takes the answer to the question whether a version is ready.
    fn seen(&mut self, id: &ServableId, remote: &Remote, ready: Result<bool, client::Failure>) {
        let loads = self.engine.settings.load;
        let is_up = self.taken.wanted.get(id).is_some_and(|wanted| wanted.is_up);
        let Some(held) = self.held.get_mut(id) else { return };
        let was_ready = held.standing == Standing::Ready;
        match ready {
            Ok(true) => {
                if is_up && !was_ready && held.was_missing {
                    tracing::info!(
                        engine = %self.id, server = %self.name, servable = %id,
                        "a server has a model again"
                    );
                }
                held.found();
            }
            Ok(false) => {
                if was_ready {
                    tracing::warn!(
                        engine = %self.id, server = %self.name, servable = %id,
                        "a server has lost a model; others get its calls"
                    );
                }
                let message =
                    format!("{} does not have the model {:?} ready", self.name, remote.model);
                held.missed(Failure::new(Reason::EngineUnavailable, message), loads, LOADS);
            }
            // It may only have much to do.
            Err(_) if was_ready => {}
            Err(failure) => held.standing = Standing::Missing(unavailable(&failure)),
        }
    }
}
