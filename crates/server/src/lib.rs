//! The gRPC and HTTP surfaces; wires the parts.
