//! Docker's credential helpers: `docker-credential-NAME get`.

use std::{path::Path, process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
};

use super::{Credential, DOCKER_HUB_KEY, docker_config::login, is_docker_hub};
use crate::Error;

/// The most bytes read of a helper's output; real ones print far less.
const MAX_OUTPUT: u64 = 64 << 10;
/// The text that helpers print when they have no credential; part of their protocol.
const NOT_FOUND: &[u8] = b"credentials not found";

/// A helper's answer. It holds a secret, so it has no `Debug`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Asks the helper `name` for the credential of `host`. Its output never becomes part of an error,
/// since it may hold the secret.
pub(super) async fn get(
    name: &str,
    host: &str,
    limit: Duration,
) -> Result<Option<Credential>, Error> {
    if name.contains('/') {
        return Err(Error::denied(host, "a credential helper's name has no slash"));
    }
    ask(Path::new(&format!("docker-credential-{name}")), host, limit).await
}

/// Asks a helper, given by its program's name or path.
pub(super) async fn ask(
    program: &Path,
    host: &str,
    limit: Duration,
) -> Result<Option<Credential>, Error> {
    match tokio::time::timeout(limit, run(program, host)).await {
        Ok(answer) => answer,
        Err(_) => {
            let detail = format!("{} did not answer within {limit:?}", program.display());
            Err(Error::unavailable(host, detail))
        }
    }
}

async fn run(program: &Path, host: &str) -> Result<Option<Credential>, Error> {
    let name = program.display();
    let failed = |detail: String| Error::unavailable(host, format!("{name}: {detail}"));
    let mut child = spawn(program)
        .map_err(|error| Error::denied(host, format!("{name} cannot be run: {error}")))?;
    let output = converse(&mut child, host).await.map_err(|error| failed(error.to_string()))?;
    let status = child.wait().await.map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        let nothing = output.windows(NOT_FOUND.len()).any(|window| window == NOT_FOUND);
        return if nothing { Ok(None) } else { Err(failed(status.to_string())) };
    }
    let answer: Answer = serde_json::from_slice(&output)
        .map_err(|_| failed("its answer cannot be understood".to_owned()))?;
    Ok(Some(login(answer.username, answer.secret)))
}

fn spawn(program: &Path) -> std::io::Result<Child> {
    Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

async fn converse(child: &mut Child, host: &str) -> std::io::Result<Vec<u8>> {
    let server = if is_docker_hub(host) { DOCKER_HUB_KEY } else { host };
    let mut stdin = child.stdin.take().expect("piped above");
    // The error is ignored: a helper that does not read its input may still answer.
    let _ = stdin.write_all(server.as_bytes()).await;
    drop(stdin);
    let stdout = child.stdout.take().expect("piped above");
    let mut output = Vec::new();
    stdout.take(MAX_OUTPUT).read_to_end(&mut output).await?;
    Ok(output)
}
