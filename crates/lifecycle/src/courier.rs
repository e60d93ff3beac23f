//! Delivers messages to an engine in order, each after the journal has the state that caused it.

use std::sync::Arc;

use outrigger_core::engine::ToEngine;
use outrigger_run::Engine;
use tokio::sync::mpsc;

use crate::world::World;

/// Delivers messages to one engine.
pub(crate) struct Courier(mpsc::UnboundedSender<(ToEngine, u64)>);

impl Courier {
    /// Creates a courier, and the task that delivers its messages until the courier is dropped.
    pub(crate) fn new(
        world: Arc<World>,
        engine: Arc<dyn Engine>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        // At most two messages per version wait, so the number of versions bounds the queue.
        let (sender, mut messages) = mpsc::unbounded_channel::<(ToEngine, u64)>();
        let deliver = async move {
            while let Some((message, number)) = messages.recv().await {
                world.durable.settled(number).await;
                engine.send(message);
            }
        };
        (Self(sender), deliver)
    }

    /// Sends `message` once the state `number` is settled.
    pub(crate) fn send(&self, message: ToEngine, number: u64) {
        // The receiver ends only when the process stops.
        self.0.send((message, number)).ok();
    }
}
