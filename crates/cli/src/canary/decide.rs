//! `outrigger canary status|promote|abort`: the canaries of a server.

use outrigger_tools::{
    ModelArgument,
    canaries::{Canaries, Decision, render},
    output::message_json,
};

use crate::{
    access,
    exit::{self, Exit, Output},
};

/// The server to call.
#[derive(Debug, clap::Args)]
struct Server {
    /// Address of the server's admin listener (other gRPC listeners permit reading).
    #[arg(long, env = "OUTRIGGER_ADMIN", default_value = "127.0.0.1:9901")]
    admin: String,
    #[command(flatten)]
    access: access::Options,
}

impl Server {
    async fn connect(self) -> Result<Canaries, outrigger_tools::Error> {
        Canaries::connect(&self.admin, &self.access.into()).await
    }

    async fn connect_for_change(self) -> Result<Canaries, Exit> {
        let access = self.access.for_change(&self.admin)?;
        Ok(Canaries::connect(&self.admin, &access).await?)
    }
}

/// Shows a server's canaries, their figures and recent decisions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  outrigger canary status churn -o json")]
pub(crate) struct Status {
    /// Show only this model.
    model: Option<ModelArgument>,
    #[command(flatten)]
    server: Server,
    /// Format of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// A decision about a canary.
#[derive(Debug, clap::Args)]
pub(crate) struct Decide {
    /// name, or name:tag if the live tag is not the default one.
    model: ModelArgument,
    /// Reason, for the record.
    #[arg(long)]
    reason: String,
    /// Name of the person who decides, for the record of changes.
    #[arg(long, env = "USER")]
    by: String,
    #[command(flatten)]
    server: Server,
}

pub(super) fn status(arguments: Status) -> Result<(), Exit> {
    let Status { model, server, output } = arguments;
    let name = model.map(|model| model.name);
    let asked = async { server.connect().await?.list(name.as_ref()).await };
    let canaries = exit::block_on(asked)??;
    match output {
        Output::Text => exit::print(render::status(&canaries)),
        Output::Json => exit::print_json(&message_json("ListCanariesResponse", &canaries)),
    }
}

pub(super) fn promote(arguments: Decide) -> Result<(), Exit> {
    let (server, decision) = arguments.split();
    exit::block_on(async { Ok(server.connect_for_change().await?.promote(decision).await?) })?
}

pub(super) fn abort(arguments: Decide) -> Result<(), Exit> {
    let (server, decision) = arguments.split();
    exit::block_on(async { Ok(server.connect_for_change().await?.abort(decision).await?) })?
}

impl Decide {
    fn split(self) -> (Server, Decision) {
        let Self { model, reason, by, server } = self;
        (server, Decision { model, by, reason })
    }
}
