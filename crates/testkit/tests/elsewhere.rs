//! The scenarios of engines elsewhere, with the scripted engine.

use std::{fs, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::{Content, DType, Tensor};
use outrigger_run::{self as run, Call, PackagedModel};
use outrigger_testkit::{
    elsewhere::{self, Behaviour, Site, Told},
    remote::{Engine, Mode, Request, Server},
};
use tempfile::TempDir;
use tokio::time::Instant;

/// The only server of an engine.
struct One {
    server: Server,
    packages: TempDir,
}

impl One {
    fn start() -> Self {
        let server = Server::start().expect("a server");
        Self { server, packages: tempfile::tempdir().expect("a directory") }
    }
}

impl Site for One {
    fn engine(&self) -> Arc<dyn run::Engine> {
        Arc::new(Engine::new(self.server.socket(), Duration::from_secs(2)))
    }

    fn servers(&self) -> usize {
        1
    }

    fn package(&self, number: i64) -> PackagedModel {
        let directory = self.packages.path().join(number.to_string());
        fs::create_dir_all(&directory).expect("a directory");
        let text = r#"{"user": 1, "treatment": 1, "bias": 0.0}"#;
        fs::write(directory.join("scripted.json"), text).expect("written");
        PackagedModel::from(directory.as_path())
    }

    fn call(&self, deadline: Instant) -> Call {
        let content = Content::Bytes(1_f32.to_le_bytes().to_vec().into());
        let shape = vec![1, 1, 1];
        let input = Tensor { name: "treatment".into(), dtype: DType::Float32, shape, content };
        Call::new(vec![input], vec!["scores".into()], deadline)
    }

    fn stop(&self, _: usize) -> BoxFuture<'_, ()> {
        self.server.stop().boxed()
    }

    fn resume(&self, _: usize) -> BoxFuture<'_, ()> {
        async { self.server.resume().expect("the socket is free") }.boxed()
    }

    fn behave(&self, _: usize, behaviour: Behaviour) {
        self.server.behave(match behaviour {
            Behaviour::Works => Mode::Answers,
            Behaviour::IsSilent => Mode::Hangs,
            Behaviour::Refuses => Mode::RefusesValues,
            other => panic!("the only server does not do it: {other:?}"),
        });
    }

    fn answered(&self, server: usize) -> usize {
        // It answers every run.
        self.told(server).runs
    }

    fn told(&self, _: usize) -> Told {
        let mut told = Told::default();
        for request in self.server.received() {
            match request {
                Request::Load(..) => told.loads += 1,
                Request::Unload(_) => told.unloads += 1,
                Request::Run(..) => told.runs += 1,
                Request::List | Request::Describe(_) => {}
            }
        }
        told
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_told_nothing_until_it_is_back() {
    elsewhere::all_are_down(&One::start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_has_been_away_since_its_last_answer() {
    elsewhere::all_are_silent(&One::start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_data_of_a_caller_is_no_fault_of_the_server() {
    elsewhere::a_caller_sends_bad_data(&One::start()).await;
}
