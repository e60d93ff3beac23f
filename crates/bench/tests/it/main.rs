//! The load generator with scripted servers.

mod control_plane;
mod departures;
mod engine;
mod find_rate;
mod frames;
mod inference;
mod open_loop;
mod options;
mod outcomes;
mod progress;
mod servers;
mod stops;
