//! The `outrigger` binary: arguments and exit codes.
// Doc comments of arguments are help texts, where brackets are not links.
#![allow(rustdoc::broken_intra_doc_links)]

mod access;
mod allocator;
mod batch;
mod bench;
mod canary;
mod dev;
mod diff;
mod engine;
mod exit;
mod frameworks;
mod models;
mod onnx;
mod package;
mod predict;
mod progress;
mod serve;
mod signals;
mod token;
mod unknown_flags;
mod validate;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::exit::Exit;

/// Serves models with TensorFlow Serving: models as OCI images, features in, scores out,
/// no restarts.
#[derive(Debug, Parser)]
#[command(name = "outrigger", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Arguments>),
    Engine(Box<engine::Arguments>),
    Onnx(onnx::Arguments),
    Dev(Box<dev::Arguments>),
    Push(package::Push),
    Pull(package::Pull),
    Inspect(package::Inspect),
    Validate(Box<validate::Arguments>),
    Diff(Box<diff::Arguments>),
    Predict(predict::Arguments),
    Token(token::Arguments),
    #[command(subcommand)]
    Models(models::Command),
    #[command(subcommand)]
    Canary(canary::Command),
    Bench(Box<bench::Arguments>),
    #[command(subcommand)]
    Batch(batch::Command),
}

fn main() -> std::process::ExitCode {
    allocator::set_purge_delay();
    let (known, unknown) = unknown_flags::split(&Arguments::command(), std::env::args_os());
    let arguments = match Arguments::try_parse_from(known) {
        Ok(arguments) => arguments,
        Err(error) => return exit::print_clap_error(&error),
    };
    for flag in unknown {
        exit::report(format_args!("unknown flag {} is ignored", flag.display()));
    }
    // Fails only if a provider is installed already, which is impossible here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outcome: Result<(), Exit> = match arguments.command {
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Engine(arguments) => engine::run(*arguments),
        Command::Onnx(arguments) => onnx::run(arguments),
        Command::Dev(arguments) => dev::run(*arguments),
        Command::Push(arguments) => package::push(arguments),
        Command::Pull(arguments) => package::pull(arguments),
        Command::Inspect(arguments) => package::inspect(arguments),
        Command::Validate(arguments) => validate::run(*arguments),
        Command::Diff(arguments) => diff::run(*arguments),
        Command::Predict(arguments) => predict::run(arguments),
        Command::Token(arguments) => token::run(arguments),
        Command::Models(command) => models::run(command),
        Command::Canary(command) => canary::run(command),
        Command::Bench(arguments) => bench::run(*arguments),
        Command::Batch(command) => batch::run(command),
    };
    exit::code(outcome)
}
