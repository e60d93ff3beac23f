//! metadata.json, the packing plan, requests to tensors and back. Sync, no I/O.
