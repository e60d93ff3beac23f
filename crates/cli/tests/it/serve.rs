//! `outrigger serve` as a process: exit codes, dumps, signals.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    process::{Child, ChildStderr, Command, Output, Stdio},
};

fn serve() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger"));
    command.arg("serve").env_clear();
    command
}

fn output(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("an exit code"), text(stdout), text(stderr))
}

#[test]
fn a_bad_configuration_exits_64_with_all_problems_and_starts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("outrigger.yaml");
    std::fs::write(&file, "server: {grpc: nowhere, prot: 1}\nstore: {max_size: lots}\n").unwrap();
    let store = directory.path().join("store");
    let mut command = serve();
    command.arg("--config").arg(&file).arg("--store").arg(&store);
    let (code, _, errors) = output(command.args(["--set", "images.tag=x"]));
    assert_eq!(code, 64, "{errors}");
    for key in ["server.grpc", "server.prot", "store.max_size", "images.tag", "images.repository"] {
        assert!(errors.contains(&format!("\n{key}: ")), "{key} in {errors}");
    }
    assert!(!store.exists());
}

#[test]
fn a_missing_file_and_a_malformed_flag_exit_64() {
    assert_eq!(output(serve().args(["--config", "/nonexistent/outrigger.yaml"])).0, 64);
    assert_eq!(output(serve().args(["--set", "server.grpc"])).0, 64);
    assert_eq!(output(serve().args(["--check-config"])).0, 64, "there is no source of models");
}

#[test]
fn a_configuration_is_checked_and_dumped_without_starting() {
    let valid = ["--repository", "registry.example/team"];
    let (code, text, _) = output(serve().args(valid).arg("--check-config"));
    assert_eq!((code, text.as_str()), (0, "the configuration is valid\n"));
    let mut command = serve();
    command.args(valid).arg("--dump-config").env("OUTRIGGER_SERVER_GRPC", "127.0.0.1:7");
    let (code, text, _) = output(&mut command);
    assert_eq!(code, 0);
    let line = "grpc: \"127.0.0.1:7\"  # environment OUTRIGGER_SERVER_GRPC\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("repository: \"registry.example/team\"  # flag\n"), "{text}");
}

#[test]
fn an_address_in_use_exits_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (code, _, errors) =
        output(
            serve()
                .args(["--repository", "registry.example/team", "--grpc", "127.0.0.1:0"])
                .args(["--health", &taken, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]),
        );
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains(&format!("cannot listen on {taken} for health")), "{errors}");
}

/// A running server without an engine, with its log after the event "listening".
struct Running {
    process: Child,
    log: BufReader<ChildStderr>,
    _store: tempfile::TempDir,
}

impl Running {
    fn start(settings: &[&str]) -> Self {
        Self::by(serve(), settings).0
    }

    /// Starts a server by a command; returns the event with its addresses too.
    fn by(mut command: Command, settings: &[&str]) -> (Self, serde_json::Value) {
        let store = tempfile::tempdir().expect("a directory");
        command.arg("--store").arg(store.path()).args(settings).args([
            "--repository=registry.example/team",
            "--grpc=127.0.0.1:0",
            "--http=127.0.0.1:0",
            "--health=127.0.0.1:0",
            "--admin=127.0.0.1:0",
            "--log-format=json",
            "--engine=unix:/nonexistent/engine.sock",
        ]);
        let mut process = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let log = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut running = Self { process, log, _store: store };
        let event = running.logged("listening");
        assert!(event["grpc"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")));
        (running, event)
    }

    /// Reads the log up to the next event with this message.
    fn logged(&mut self, message: &str) -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.log.read_line(&mut line).expect("text"),
                0,
                "it ended before: {message}"
            );
            let event: serde_json::Value = serde_json::from_str(&line).expect("a line of JSON");
            if event["message"] == message {
                return event;
            }
        }
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(
            Command::new("kill").args(["-s", name, &id]).status().expect("kill runs").success()
        );
    }

    /// Waits for the orderly stop; returns the exit code.
    fn stopped(mut self) -> Option<i32> {
        self.logged("stopped");
        self.process.wait().expect("our child").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A server that a failed test leaves behind would keep the test's output open.
        self.process.kill().ok();
    }
}

#[test]
fn a_signal_stops_the_process_in_order_with_exit_code_0() {
    for signal in ["TERM", "INT"] {
        let mut server = Running::start(&["--set=server.shutdown_delay=1ms"]);
        server.signal(signal);
        assert_eq!(server.logged("received a signal to stop")["signal"], format!("SIG{signal}"));
        assert_eq!(server.stopped(), Some(0));
    }
}

#[test]
fn a_second_signal_stops_at_once() {
    let day = ["--set=server.shutdown_delay=1d", "--set=server.shutdown_grace=2d"];
    let mut server = Running::start(&day);
    server.signal("TERM");
    assert_eq!(server.logged("received a signal to stop")["at_once"], false);
    server.signal("TERM");
    assert_eq!(server.stopped(), Some(0));
}

/// The status line of a GET.
fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

#[test]
fn idle_connections_on_one_port_block_no_other_port_with_few_descriptors() {
    // Each of these connections takes a descriptor of this process too. They are spread over
    // processes, because this one may have the same limit.
    let mut command = Command::new("sh");
    let limited = r#"ulimit -n 1024 && exec "$0" serve "$@""#;
    command.args(["-c", limited, env!("CARGO_BIN_EXE_outrigger")]).env_clear();
    let (server, event) = Running::by(command, &["--set=auth.anonymous=[predict,read,change]"]);
    let address = |name: &str| event[name].as_str().expect("an address").to_owned();
    for crowded in ["grpc", "http", "admin", "health"] {
        let mut idle = Vec::new();
        for _ in 0..1100 {
            match TcpStream::connect(address(crowded)) {
                Ok(mut stream) => {
                    // One byte less than the preface of HTTP/2: it is not silent.
                    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r").ok();
                    idle.push(stream);
                }
                Err(error) => panic!("{crowded}: {error} after {}", idle.len()),
            }
        }
        for (name, path) in [
            ("health", "/healthz"),
            ("http", "/v1/models"),
            ("admin", "/ui"),
            ("health", "/metrics"),
        ] {
            let status = get(&address(name), path);
            let good = status.as_ref().is_ok_and(|status| status.starts_with("HTTP/1.1 200"));
            assert!(good, "{crowded} is crowded: {name} answers {status:?}");
        }
    }
    drop(server);
}
