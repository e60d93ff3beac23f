//! The client: one interface to registries and layout directories.

use std::{path::Path, sync::Arc};

use outrigger_core::{Digest, Selector, Tag};

use crate::{
    Config, Error, Image, Layer, Progress, Reference, Repository, Retries,
    blocking::blocking,
    download::download,
    layout::Layout,
    manifest::{self, Descriptor, Manifest},
    metrics::{begin, pulled, pushed},
    partial::Partial,
    push::ImageToPush,
    registry::{Remote, Seen},
    retry::retrying,
    source::Stored,
    transport::Transport,
};

/// Reads and writes images, in registries and layout directories alike.
/// Cheap to clone.
///
/// Errors: an unavailable registry is tried again as [`Config::retries`] says
/// before it becomes [`Error::Unavailable`]; everything else is final. A
/// dropped future stops its work; files of [`Client::fetch_blob`] stay and are
/// resumed.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    transport: Transport,
    seen: Seen,
}

/// Where a reference leads.
pub(crate) enum Place<'a> {
    Remote(Remote<'a>),
    Layout(Layout),
}

impl Client {
    /// A client. Errors: no TLS provider is installed in the process, or the
    /// file of certificate authorities cannot be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        let transport = Transport::new(&config)?;
        begin();
        Ok(Self { inner: Arc::new(Inner { config, transport, seen: Seen::default() }) })
    }

    /// What `reference` means now: the digest of the manifest, or of the index
    /// of a multi-platform image.
    pub async fn resolve(&self, reference: &Reference) -> Result<Digest, Error> {
        pulled("resolve", self.resolve_uncounted(reference).await)
    }

    async fn resolve_uncounted(&self, reference: &Reference) -> Result<Digest, Error> {
        let selector = reference.selected();
        match self.place(reference)? {
            Place::Remote(remote) => retrying(self.retries(), || remote.resolve(&selector)).await,
            Place::Layout(layout) => blocking(move || layout.resolve(&selector)).await,
        }
    }

    /// Whether there certainly is no such tag or digest as `reference` names. Unlike
    /// [`Error::TagNotFound`], which any server on the way may be the cause of, this
    /// is the registry's own word, or that of a layout's index.
    ///
    /// # Errors
    /// The registry does not say.
    pub async fn is_missing(&self, reference: &Reference) -> Result<bool, Error> {
        let selector = reference.selected();
        match self.place(reference)? {
            Place::Remote(remote) => {
                retrying(self.retries(), || remote.is_missing(&selector)).await
            }
            Place::Layout(layout) => match blocking(move || layout.resolve(&selector)).await {
                Ok(_) => Ok(false),
                Err(Error::TagNotFound { .. } | Error::DigestNotFound { .. }) => Ok(true),
                Err(error) => Err(error),
            },
        }
    }

    /// The image that `reference` means, for this machine's platform: manifest
    /// and configuration, verified. Layers are fetched apart.
    pub async fn image(&self, reference: &Reference) -> Result<Image, Error> {
        pulled("image", self.image_uncounted(reference).await)
    }

    async fn image_uncounted(&self, reference: &Reference) -> Result<Image, Error> {
        let what = reference.to_string();
        let outer = self.manifest(reference, &reference.selected()).await?;
        let parsed = manifest::parse(&what, &outer.body, outer.media_type.as_deref())?;
        let (digest, stored, image) = match parsed {
            Manifest::Image(image) => (outer.digest, outer, image),
            Manifest::Index(index) => {
                let platform = &self.inner.config.platform;
                let Descriptor { digest, .. } = manifest::choose(&what, &index, platform)?;
                let stored = self.manifest(reference, &Selector::Digest(digest)).await?;
                match manifest::parse(&what, &stored.body, stored.media_type.as_deref())? {
                    Manifest::Image(image) => (outer.digest, stored, image),
                    Manifest::Index(_) => {
                        return Err(Error::invalid(what, "an index within an index"));
                    }
                }
            }
        };
        let config = manifest::checked(&what, &image.config.digest, image.config.size)?;
        let config = self.config(reference, config).await?;
        Ok(Image {
            reference: reference.with_digest(digest),
            digest,
            platform_digest: stored.digest,
            manifest: stored.body,
            labels: manifest::labels(&what, &config.body)?,
            config: config.body,
            layers: manifest::layers(&what, &image)?,
            annotations: image.annotations.unwrap_or_default(),
        })
    }

    /// Receives a layer into the file `dest`, which is created where needed.
    /// What `dest` holds already is hashed and resumed from. On success it
    /// holds exactly the layer, synced. It is removed when what came is not
    /// the layer, and left for the next time when the transfer broke.
    pub async fn fetch_blob(
        &self,
        reference: &Reference,
        layer: &Layer,
        dest: &Path,
    ) -> Result<(), Error> {
        self.fetch_blob_with(reference, layer, dest, &Progress::default()).await
    }

    /// [`Client::fetch_blob`] that counts bytes in `progress`.
    pub async fn fetch_blob_with(
        &self,
        reference: &Reference,
        layer: &Layer,
        dest: &Path,
        progress: &Progress,
    ) -> Result<(), Error> {
        pulled("blob", self.fetch_blob_uncounted(reference, *layer, dest, progress.clone()).await)
    }

    async fn fetch_blob_uncounted(
        &self,
        reference: &Reference,
        layer: Layer,
        dest: &Path,
        progress: Progress,
    ) -> Result<(), Error> {
        let place = self.place(reference)?;
        let dest = dest.to_owned();
        let open = move || Partial::open(&dest, layer, progress);
        match place {
            Place::Remote(remote) => download(&remote, &layer, blocking(open).await?).await,
            Place::Layout(layout) => blocking(move || layout.copy(layer.digest, open()?)).await,
        }
    }

    /// Pushes an image: its blobs, except those that are there, and at last
    /// the manifest under the reference's tag. A reference by digest must name
    /// the image's own.
    pub async fn push(&self, reference: &Reference, image: &ImageToPush) -> Result<Digest, Error> {
        pushed(self.push_uncounted(reference, image).await)
    }

    async fn push_uncounted(
        &self,
        reference: &Reference,
        image: &ImageToPush,
    ) -> Result<Digest, Error> {
        let (selector, actual) = (reference.selected(), image.digest());
        if let Selector::Digest(expected) = selector
            && expected != actual
        {
            return Err(Error::DigestMismatch { what: "the image".to_owned(), expected, actual });
        }
        match self.place(reference)? {
            Place::Remote(remote) => remote.push(&selector, image).await?,
            Place::Layout(layout) => {
                let image = image.clone();
                blocking(move || layout.push(&selector, &image)).await?;
            }
        }
        Ok(actual)
    }

    /// Points `tag` at what `reference` means; returns that digest.
    pub async fn tag(&self, reference: &Reference, tag: &Tag) -> Result<Digest, Error> {
        let stored = self.manifest(reference, &reference.selected()).await?;
        self.point(reference, tag, stored).await
    }

    /// The same if the tag means `from` and `may_push` then says so; returns what it
    /// means in the end.
    ///
    /// Registries cannot compare and set: the tag is looked up immediately before the
    /// push and after it. What somebody else pushes between the look and the push is
    /// overwritten; what they push after it stays, and is told.
    pub async fn move_tag(
        &self,
        reference: &Reference,
        tag: &Tag,
        from: Digest,
        may_push: impl FnOnce() -> bool,
    ) -> Result<Digest, Error> {
        let stored = self.manifest(reference, &reference.selected()).await?;
        let tagged = reference.with_tag(tag.clone());
        let found = self.resolve(&tagged).await?;
        if found != from || !may_push() {
            return Ok(found);
        }
        self.point(reference, tag, stored).await?;
        self.resolve(&tagged).await
    }

    async fn point(
        &self,
        reference: &Reference,
        tag: &Tag,
        stored: Stored,
    ) -> Result<Digest, Error> {
        match self.place(reference)? {
            Place::Remote(remote) => {
                let parsed = manifest::parse(
                    &reference.to_string(),
                    &stored.body,
                    stored.media_type.as_deref(),
                )?;
                let media_type = manifest::media_type(&parsed);
                let tag = Selector::Tag(tag.clone());
                remote.put_manifest(&tag, &media_type, stored.body).await?;
            }
            Place::Layout(layout) => {
                let tag = tag.clone();
                blocking(move || layout.tag(stored.digest, &tag)).await?;
            }
        }
        Ok(stored.digest)
    }

    pub(crate) async fn manifest(
        &self,
        reference: &Reference,
        selector: &Selector,
    ) -> Result<Stored, Error> {
        match self.place(reference)? {
            Place::Remote(remote) => retrying(self.retries(), || remote.manifest(selector)).await,
            Place::Layout(layout) => {
                let selector = selector.clone();
                blocking(move || layout.manifest(&selector)).await
            }
        }
    }

    async fn config(&self, reference: &Reference, config: Descriptor) -> Result<Stored, Error> {
        let what = format!("the configuration of {reference}");
        let limit = self.inner.config.limits.config;
        self.small_blob(reference, config.digest, config.size, &what, limit).await
    }

    /// A blob that is read into memory, if it has `limit` bytes at most. `size`
    /// is what its descriptor says.
    pub(crate) async fn small_blob(
        &self,
        reference: &Reference,
        digest: Digest,
        size: u64,
        what: &str,
        limit: u64,
    ) -> Result<Stored, Error> {
        let what = what.to_owned();
        if size > limit {
            return Err(Error::TooLarge { what, limit });
        }
        match self.place(reference)? {
            Place::Remote(remote) => {
                retrying(self.retries(), || remote.small_blob(digest, &what, limit)).await
            }
            Place::Layout(layout) => {
                blocking(move || layout.small_blob(digest, &what, limit)).await
            }
        }
    }

    pub(crate) fn retries(&self) -> &Retries {
        &self.inner.config.retries
    }

    pub(crate) fn place<'a>(&'a self, reference: &'a Reference) -> Result<Place<'a>, Error> {
        let Inner { config, transport, seen } = &*self.inner;
        let repository = reference.repository();
        match repository {
            Repository::Registry { host, path } => {
                let connection = (transport, seen);
                Remote::new(config, connection, repository, (host, path)).map(Place::Remote)
            }
            Repository::Layout(directory) => {
                Ok(Place::Layout(Layout::new(directory, config.limits.manifest)))
            }
        }
    }
}
