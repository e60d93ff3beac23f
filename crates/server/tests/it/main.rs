//! The whole server in one process: real listeners, store, image layouts and
//! machines, before an engine that does as it is told.

mod canaries;
mod collector;
mod http;
mod limits;
mod metrics;
mod models;
mod predict;
mod shutdown;
mod stack;
mod traces;
