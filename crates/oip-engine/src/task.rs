//! The engine's task: takes the orders of the control plane, and tells it what the servers report.

use std::{
    mem,
    sync::{Arc, PoisonError},
};

use outrigger_core::engine::ToEngine;
use outrigger_run::{Event, Start};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    Engine,
    engine::Inherited,
    fleet::{Fleet, Orders},
    keeper::Keeper,
};

/// Has the servers load and unload the versions that are wanted, each at its own pace.
pub(crate) struct Task {
    engine: Arc<Engine>,
    start: Start,
    fleet: Fleet,
    orders: watch::Sender<Orders>,
}

impl Task {
    pub(crate) fn new(engine: Arc<Engine>, start: Start) -> Self {
        let fleet = Fleet::new(engine.client.addresses().cloned().collect());
        Self { engine, start, fleet, orders: watch::Sender::default() }
    }

    pub(crate) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ToEngine>) {
        let removed = self.inherit();
        self.start.report(Event::Settled).await;
        let (reports, mut reported) = mpsc::channel(self.engine.client.addresses().count());
        let mut keepers = JoinSet::new();
        for server in 0..self.engine.client.addresses().count() {
            let orders = self.orders.subscribe();
            let start = &self.start;
            let stale = removed.clone();
            let keeper = Keeper::new(&self.engine, start, server, orders, reports.clone(), stale);
            keepers.spawn(keeper.run());
        }
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
                Some((server, report)) = reported.recv() => self.fleet.reported(server, report),
                Some(ended) = keepers.join_next() => {
                    ended.expect("a keeper neither panics nor is cancelled");
                }
            }
            self.tell().await;
        }
    }

    /// Takes up what an earlier process left on the servers. Returns the models to unload.
    fn inherit(&mut self) -> Vec<Arc<str>> {
        let mut inherited = self.engine.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        let Inherited { versions, removed } = mem::take(&mut *inherited);
        drop(inherited);
        versions.into_iter().for_each(|id| self.fleet.add(id));
        self.orders.send_replace(self.fleet.orders().clone());
        removed
    }

    fn handle(&mut self, message: ToEngine) {
        match message {
            ToEngine::Add(id) => self.fleet.add(id),
            ToEngine::Remove(id) => self.fleet.remove(id),
            ToEngine::Expect(_) | ToEngine::Unexpect(_) => {}
        }
    }

    /// Tells the servers and the control plane what has changed.
    async fn tell(&mut self) {
        let news = self.fleet.news();
        let orders = self.fleet.orders();
        self.orders.send_if_modified(|sent| {
            let is_new = sent != orders;
            if is_new {
                sent.clone_from(orders);
            }
            is_new
        });
        if let Some(condition) = news.condition {
            self.start.report(Event::Condition(condition)).await;
        }
        for report in news.versions {
            self.start.report(Event::Version(report)).await;
        }
    }
}
