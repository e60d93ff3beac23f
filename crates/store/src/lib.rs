//! The model store on disk.
