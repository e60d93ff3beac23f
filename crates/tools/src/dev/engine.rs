//! The engine as a child process, which is started again when it ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    net::UnixStream,
    process::Child,
    time::{sleep, timeout},
};

use crate::{
    Error,
    engine::{Program, tie_to_this_process},
};

/// The pause before an engine that has ended is started again.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval at which a starting engine is tried.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time that the engine has for requests in progress when it is stopped.
const GRACE: Duration = Duration::from_secs(5);
/// The most bytes of a line of its log; longer ones are divided.
const LINE: u64 = 16 << 10;
/// Calls that the engine takes at once: more than the control plane makes
/// (`engine.max_in_flight`). The default, four per core, is fewer.
const CALLS: usize = 160;

/// An engine in a child process. The process ends with this one, however this one ends.
#[derive(Debug)]
pub struct DevEngine {
    program: Program,
    directory: PathBuf,
    socket: PathBuf,
}

impl DevEngine {
    /// An engine with its socket in `directory`, which is created.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new(program: Program, directory: PathBuf) -> Result<Self, Error> {
        fs::create_dir_all(&directory).map_err(|error| Error::io("the engine", error))?;
        let socket = directory.join("engine.sock");
        Ok(Self { program, directory, socket })
    }

    /// The engine's endpoint for the control plane.
    pub fn endpoint(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    /// Runs the engine until `stop`, and passes on the lines of its log. If it ends before, it is
    /// started again. Must be called on the main thread: the system ends the process of the engine
    /// with the thread that started it.
    ///
    /// # Errors
    /// The engine does not start: it has ended before it accepted a connection.
    pub async fn run(&self, stop: impl Future<Output = ()>, log: fn(&str)) -> Result<(), Error> {
        let mut stop = pin!(stop);
        loop {
            let mut child = self.spawn().map_err(|error| self.failed(&error))?;
            let (output, errors) = (child.stdout.take(), child.stderr.take());
            let logged = async { tokio::join!(forward(output, log), forward(errors, log)) };
            let ran = async {
                tokio::select! {
                    ran = self.wait(&mut child) => ran,
                    () = &mut stop => terminate(&mut child).await.map(|_| None),
                }
            };
            let (ran, _) = tokio::join!(ran, logged);
            let Some(status) = ran.map_err(|error| self.failed(&error))? else { return Ok(()) };
            tracing::warn!(%status, "the engine has ended and is started again");
            tokio::select! {
                () = sleep(PAUSE) => {}
                () = &mut stop => return Ok(()),
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::Engine(format!("{}: {error}", self.program.binary.display()))
    }

    fn spawn(&self) -> io::Result<Child> {
        match fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut command = self.program.command(&self.directory, &self.socket)?;
        command.arg(format!("--grpc_max_threads={CALLS}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C on a terminal reaches all processes of a group. The engine is stopped after the
        // control plane instead.
        command.process_group(0);
        tie_to_this_process(&mut command);
        command.spawn()
    }

    /// Waits for the end of a process that has accepted a connection.
    ///
    /// # Errors
    /// It has ended before.
    async fn wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        tokio::select! {
            ended = child.wait() => return Err(io::Error::other(ended?.to_string())),
            () = accepts(&self.socket) => {}
        }
        child.wait().await.map(Some)
    }
}

async fn accepts(socket: &Path) {
    while UnixStream::connect(socket).await.is_err() {
        sleep(POLL_INTERVAL).await;
    }
}

/// Stops a process in order, and kills it if that takes too long.
async fn terminate(child: &mut Child) -> io::Result<ExitStatus> {
    let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(id) = id {
        kill_process(id, Signal::TERM)?;
    }
    match timeout(GRACE, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            child.kill().await?;
            child.wait().await
        }
    }
}

/// Passes on each line until the end of the stream.
async fn forward(stream: Option<impl AsyncRead + Unpin>, log: fn(&str)) {
    let Some(stream) = stream else { return };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while (&mut reader).take(LINE).read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        log(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn shell(script: &str) -> Program {
        let arguments = vec!["-c".to_owned(), script.to_owned(), "sh".to_owned()];
        Program {
            binary: "/bin/sh".into(),
            arguments,
            flags: |_, _| Ok(Vec::new()),
            connect: |_, _| unreachable!(),
            in_process: |_| None,
            other: |_| Ok(None),
            passes: 1,
            for_batching: false,
        }
    }

    #[tokio::test]
    async fn an_engine_that_does_not_start_is_an_error_after_its_log() {
        static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let directory = tempfile::tempdir().unwrap();
        let engine = DevEngine::new(
            shell("echo out; echo problem >&2; exit 3"),
            directory.path().join("engine"),
        );
        let log = |line: &str| LOG.lock().unwrap().push(line.to_owned());
        let error = engine.unwrap().run(std::future::pending(), log).await.unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        let mut lines = LOG.lock().unwrap().clone();
        lines.sort();
        assert_eq!(lines, ["out", "problem"]);
    }

    #[tokio::test]
    async fn a_long_line_is_divided() {
        static LOG: Mutex<Vec<usize>> = Mutex::new(Vec::new());
        let text = "x".repeat(40_000);
        forward(Some(text.as_bytes()), |line| LOG.lock().unwrap().push(line.len())).await;
        assert_eq!(*LOG.lock().unwrap(), [16_384, 16_384, 7_232]);
    }
}
