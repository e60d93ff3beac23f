//! Delivers messages to an engine in order, each after the journal has been written with the state
//! that caused it.

use std::sync::Arc;

use outrigger_core::{engine::ToEngine, machines::Legacy};
use outrigger_run::Engine;
use tokio::sync::mpsc;

use crate::world::{World, blocking};

/// A state of the journal and its number.
pub(crate) type Journal = (u64, Arc<Legacy>);

/// Delivers messages to one engine.
pub(crate) struct Courier(mpsc::UnboundedSender<(ToEngine, Journal)>);

impl Courier {
    /// Creates a courier, and the task that delivers its messages until the courier is dropped.
    pub(crate) fn new(
        world: Arc<World>,
        engine: Arc<dyn Engine>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        // At most two messages per version wait, so the number of versions bounds the queue.
        let (sender, mut messages) = mpsc::unbounded_channel::<(ToEngine, Journal)>();
        let deliver = async move {
            while let Some((message, (number, legacy))) = messages.recv().await {
                blocking(&world, move |world| world.write_journal(number, &legacy)).await;
                engine.send(message);
            }
        };
        (Self(sender), deliver)
    }

    /// Sends `message` once `journal`, or a later state, is on disk.
    pub(crate) fn send(&self, message: ToEngine, journal: Journal) {
        // The receiver ends only when the process stops.
        self.0.send((message, journal)).ok();
    }
}
