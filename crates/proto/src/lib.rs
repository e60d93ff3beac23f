//! Generated wire types: `outrigger.v1`, the Open Inference Protocol (`inference`), and the
//! parts of TensorFlow's and TensorFlow Serving's interfaces that Outrigger uses. The messages of `outrigger.v1` that describe
//! models and canaries serialise as the JSON of the HTTP surface.
//!
//! The comments in `proto/` document every generated type.
#![allow(missing_docs, unreachable_pub, clippy::all)]

pub mod raw;
mod scores;
pub mod shown;

/// Outrigger's public interface, `outrigger.v1`.
pub mod outrigger {
    pub mod v1 {
        tonic::include_proto!("outrigger.v1");

        /// The encoded `google.protobuf.FileDescriptorSet` of this package and its
        /// imports, for server reflection and dynamic messages.
        pub const FILE_DESCRIPTOR_SET: &[u8] =
            include_bytes!(concat!(env!("OUT_DIR"), "/outrigger.v1.bin"));
    }
}

/// The Open Inference Protocol, with the extensions of Triton Inference Server that are used.
pub mod inference {
    tonic::include_proto!("inference");

    /// The encoded `google.protobuf.FileDescriptorSet` of this package, for server
    /// reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inference.bin"));
}

/// TensorFlow's tensors, signatures and SavedModel.
pub mod tensorflow {
    tonic::include_proto!("tensorflow");

    /// TensorFlow Serving's gRPC interface.
    pub mod serving {
        tonic::include_proto!("tensorflow.serving");
    }
}
