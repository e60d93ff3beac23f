//! The content of a repository.

use std::collections::BTreeMap;

use bytes::Bytes;
use outrigger_core::Digest;

/// A manifest or index.
#[derive(Debug, Clone)]
pub(super) struct Manifest {
    pub(super) digest: Digest,
    pub(super) media_type: String,
    pub(super) body: Bytes,
}

/// One repository.
#[derive(Debug, Default)]
pub(super) struct Content {
    manifests: BTreeMap<Digest, Manifest>,
    tags: BTreeMap<String, Digest>,
    blobs: BTreeMap<Digest, Bytes>,
}

impl Content {
    pub(super) fn put_blob(&mut self, digest: Digest, bytes: Bytes) {
        self.blobs.insert(digest, bytes);
    }

    pub(super) fn blob(&self, digest: &Digest) -> Option<Bytes> {
        self.blobs.get(digest).cloned()
    }

    pub(super) fn put_manifest(
        &mut self,
        tag: Option<&str>,
        media_type: &str,
        body: Bytes,
    ) -> Digest {
        let digest = Digest::of(&body);
        let media_type = media_type.to_owned();
        self.manifests.insert(digest, Manifest { digest, media_type, body });
        if let Some(tag) = tag {
            self.tag(tag, digest);
        }
        digest
    }

    pub(super) fn manifest(&self, digest: &Digest) -> Option<&Manifest> {
        self.manifests.get(digest)
    }

    /// Finds a manifest by tag or digest.
    pub(super) fn find(&self, reference: &str) -> Option<&Manifest> {
        match reference.parse() {
            Ok(digest) => self.manifests.get(&digest),
            Err(_) => self.manifests.get(self.tags.get(reference)?),
        }
    }

    pub(super) fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.manifests.values()
    }

    pub(super) fn tag(&mut self, tag: &str, digest: Digest) {
        self.tags.insert(tag.to_owned(), digest);
    }

    pub(super) fn remove_tag(&mut self, tag: &str) {
        self.tags.remove(tag);
    }

    pub(super) fn tags(&self) -> Vec<&str> {
        self.tags.keys().map(String::as_str).collect()
    }

    pub(super) fn tagged(&self, tag: &str) -> Option<Digest> {
        self.tags.get(tag).copied()
    }
}
