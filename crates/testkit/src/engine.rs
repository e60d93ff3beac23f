//! A scriptable fake of TensorFlow Serving: its gRPC interface, its states and the ways in which it
//! hangs, without models.
//!
//! It reads base paths and versions from the real file system. It runs on a runtime of its own, so
//! that it can be killed like a process, with its connections and all of its state.

mod gate;
mod process;
mod reload;
mod script;
mod service;
mod tensor;

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use outrigger_proto::tensorflow::serving::model_service_server::ModelServiceServer;
use tokio::{
    net::{TcpListener, UnixListener},
    runtime::{Builder, Runtime},
    sync::watch,
};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::Server;

pub use self::{
    gate::Gate,
    process::View,
    script::{Load, Loading, Predicting, Prediction, Received, Reloading, Violation, Workers},
    tensor::{float_values, floats, row_sums, to_proto},
};
pub use outrigger_proto::tensorflow::serving::model_version_status::State;

use self::{
    process::Process,
    script::{Script, lock},
    service::{Predictions, Surface},
};

/// The fake engine. Clones are one engine, which ends when the last is dropped.
#[derive(Clone)]
pub struct FakeEngine {
    shared: Arc<Shared>,
}

struct Shared {
    address: Address,
    script: Arc<Script>,
    view: watch::Sender<View>,
    running: Mutex<Option<Runtime>>,
}

enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl FakeEngine {
    /// Starts an engine on a free port of the loopback interface.
    pub fn tcp() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        let address = Address::Tcp(listener.local_addr()?);
        Self::start(address, Listener::Tcp(listener))
    }

    /// Starts an engine on a unix socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let address = Address::Unix(path.to_owned());
        let listener = address.bind()?;
        Self::start(address, listener)
    }

    fn start(address: Address, listener: Listener) -> io::Result<Self> {
        let shared = Shared {
            address,
            script: Arc::default(),
            view: watch::Sender::default(),
            running: Mutex::default(),
        };
        shared.run(listener)?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The engine's address in the form of a client's configuration.
    pub fn endpoint(&self) -> String {
        match &self.shared.address {
            Address::Tcp(address) => address.to_string(),
            Address::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Kills the engine: connections break, nothing listens, its state is lost. Scripts and records
    /// stay.
    pub async fn stop(&self) {
        let Some(runtime) = lock(&self.shared.running).take() else { return };
        let ended = tokio::task::spawn_blocking(move || {
            runtime.shutdown_timeout(Duration::from_secs(10));
        });
        ended.await.expect("the engine's runtime ends");
        if let Address::Unix(path) = &self.shared.address {
            std::fs::remove_file(path).expect("the socket was there");
        }
        self.shared.view.send_replace(View::new());
    }

    /// Starts the engine again at the same address, with an empty configuration.
    pub fn resume(&self) -> io::Result<()> {
        self.shared.run(self.shared.address.bind()?)
    }

    /// [`Self::stop`] and [`Self::resume`].
    pub async fn restart(&self) -> io::Result<()> {
        self.stop().await;
        self.resume()
    }

    /// Freezes the engine: from now on it answers no call and loads nothing, as after SIGSTOP.
    pub fn freeze(&self) {
        self.shared.script.freeze(Some(Gate::closed()));
    }

    /// Ends [`Self::freeze`]: calls that arrived meanwhile are answered now.
    pub fn thaw(&self) {
        self.shared.script.freeze(None);
    }

    /// Sets the script for loads.
    pub fn on_load(&self, script: impl Fn(&Load) -> Loading + Send + Sync + 'static) {
        self.shared.script.on_load(Arc::new(script));
    }

    /// Sets the script for reloads.
    pub fn on_reload(&self, script: impl Fn() -> Reloading + Send + Sync + 'static) {
        self.shared.script.on_reload(Arc::new(script));
    }

    /// Sets the script for predictions. Without a script, each output is the sum over the last
    /// dimension of the input of the highest rank.
    pub fn on_predict(&self, script: impl Fn(&Prediction) -> Predicting + Send + Sync + 'static) {
        self.shared.script.on_predict(Arc::new(script));
    }

    /// The present states of all versions, with their changes.
    pub fn view(&self) -> watch::Receiver<View> {
        self.shared.view.subscribe()
    }

    /// Waits until the states satisfy `condition`.
    pub async fn until(&self, condition: impl FnMut(&View) -> bool) {
        let mut view = self.view();
        view.wait_for(condition).await.expect("the engine keeps its own sender");
    }

    /// Waits until a version of a servable is AVAILABLE.
    pub async fn until_available(&self, name: &str, version: i64) {
        // The condition reads the view that it is given: [`Self::available`] would lock it
        // once more, which blocks for ever when a change waits for the lock.
        let key = (name.to_owned(), version);
        self.until(|view| view.get(&key) == Some(&State::Available)).await;
    }

    /// The versions of a servable that are AVAILABLE.
    pub fn available(&self, name: &str) -> BTreeSet<i64> {
        let view = self.shared.view.borrow();
        let serving =
            view.iter().filter(|((known, _), state)| known == name && **state == State::Available);
        serving.map(|((_, version), _)| *version).collect()
    }

    /// All calls so far in order of arrival, over all restarts.
    pub fn received(&self) -> Vec<Received> {
        self.shared.script.received()
    }

    /// The clients' violations of the engine's rules, each once.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.script.violations().borrow().clone()
    }

    /// Waits until a client has violated one of the engine's rules.
    pub async fn until_violated(&self) {
        let mut violations = self.shared.script.violations();
        let violated = violations.wait_for(|violations| !violations.is_empty()).await;
        drop(violated.expect("the engine keeps its own sender"));
    }
}

impl Address {
    fn bind(&self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(address) => Listener::Tcp(std::net::TcpListener::bind(address)?),
            Self::Unix(path) => Listener::Unix(std::os::unix::net::UnixListener::bind(path)?),
        })
    }
}

impl Shared {
    fn run(&self, listener: Listener) -> io::Result<()> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("engine")
            .enable_all()
            .build()?;
        let (script, view) = (Arc::clone(&self.script), self.view.clone());
        runtime.spawn(async move {
            let surface = Surface(Process::start(script, view));
            serve(surface, listener).await.expect("the listener works until the runtime ends");
        });
        *lock(&self.running) = Some(runtime);
        Ok(())
    }
}

async fn serve(surface: Surface, listener: Listener) -> Result<(), Box<dyn std::error::Error>> {
    let models = ModelServiceServer::new(surface.clone());
    let router = Server::builder().add_service(models).add_service(Predictions::new(surface));
    match listener {
        Listener::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            let incoming = TcpListenerStream::new(TcpListener::from_std(listener)?);
            router.serve_with_incoming(incoming).await?;
        }
        Listener::Unix(listener) => {
            listener.set_nonblocking(true)?;
            let incoming = UnixListenerStream::new(UnixListener::from_std(listener)?);
            router.serve_with_incoming(incoming).await?;
        }
    }
    Ok(())
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A runtime must not be dropped within another one, so it is shut down in the background.
        if let Some(runtime) = lock(&self.running).take() {
            runtime.shutdown_background();
        }
    }
}
