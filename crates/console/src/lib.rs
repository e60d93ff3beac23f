//! The parts that the listeners for operators share: the files of a page and their style, the stream
//! of events behind it, the check that no other site's page sent a request, and the text format of
//! metrics with those of the process.

pub mod assets;
pub mod exposition;
mod feed;
mod headers;
pub mod process;
mod site;
mod topic;
mod viewers;

pub use self::{feed::Feed, headers::secure, site::Site, topic::Topic, viewers::Viewer};
