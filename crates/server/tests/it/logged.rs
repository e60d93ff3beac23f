//! Captures the logs of all tests of this process, because a process has only one subscriber.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, OnceLock},
};

use serde_json::Value;

/// Lines of the log.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures log lines from now on, at every level.
pub(crate) fn logged() -> Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    let begin = || {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_env_filter("off,outrigger=trace")
            .with_writer(move || writer.clone())
            .init();
        lines
    };
    LINES.get_or_init(begin).clone()
}

impl Lines {
    /// All lines as text.
    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().expect("nobody panics with it").clone();
        String::from_utf8(bytes).expect("text")
    }

    /// All lines as JSON; the fields of each are beside its target.
    pub(crate) fn all(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}
