//! The shells that run core's state machines.
