//! Handles Ctrl-C during a run.

use std::{process, thread};

use outrigger_bench::Stop;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use crate::exit::{Exit, INTERRUPTED};

/// Lets the first Ctrl-C stop the measurement, and a second one end the process.
pub(super) fn stop_on_interrupt(stop: Stop) -> Result<(), Exit> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Exit::failed)?;
    let entered = runtime.enter();
    let mut interrupts = signal(SignalKind::interrupt()).map_err(Exit::failed)?;
    drop(entered);
    thread::spawn(move || {
        runtime.block_on(interrupts.recv());
        stop.stop();
        runtime.block_on(interrupts.recv());
        process::exit(INTERRUPTED.into());
    });
    Ok(())
}
