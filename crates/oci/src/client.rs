//! The client: one interface to registries and layout directories.

use std::{path::Path, sync::Arc};

use oci_client::manifest::{OciImageIndex, OciImageManifest};
use outrigger_core::{Digest, Selector, Tag};

use crate::{
    Config, Error, Image, Layer, Receiver, Reference, Repository, Retries,
    blocking::blocking,
    download::download,
    layout::Layout,
    manifest::{self, Choice, Descriptor, Manifest},
    metrics::{pulled, pushed, register},
    partial::Partial,
    push::{Content, ImageToPush, LayerToPush},
    registry::{Remote, Seen},
    retry::retrying,
    source::Stored,
    transport::Transport,
};

/// Reads and writes images in registries and in layout directories. Cheap to clone.
///
/// Errors: calls to an unavailable registry are retried as [`Config::retries`] says before they
/// fail with [`Error::Unavailable`]; all other errors are final. Dropping a future stops its work;
/// the file of an interrupted [`Client::fetch_blob`] remains and is resumed by the next call.
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

/// The place that holds a reference's repository.
pub(crate) enum Place<'a> {
    Remote(Remote<'a>),
    Layout(Layout),
}

impl Client {
    /// Creates a client. Errors: no TLS provider is installed in the process, or the file of
    /// certificate authorities cannot be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        let transport = Transport::new(&config)?;
        register();
        Ok(Self { inner: Arc::new(Inner { config, transport, seen: Seen::default() }) })
    }

    /// The configured [`Timeouts::least`](crate::Timeouts::least).
    pub fn least(&self) -> u64 {
        self.inner.config.timeouts.least
    }

    /// Resolves `reference` to the digest of the manifest, or of the index for a multi-platform
    /// image.
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

    /// Reports true if the registry itself, or the layout's index, says that the tag or digest does
    /// not exist. [`Error::TagNotFound`] is weaker: a proxy's answer can cause it too.
    ///
    /// # Errors
    /// The registry's answer is neither a manifest nor a definite error.
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

    /// Reads the image that `reference` names, for this machine's platform: manifest and
    /// configuration, verified. Its layers are fetched by [`Client::fetch_blob`].
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
                let (stored, image) = self.image_of(reference, &index).await?;
                (outer.digest, stored, image)
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

    /// The image of an index for this machine's platform.
    async fn image_of(
        &self,
        reference: &Reference,
        index: &OciImageIndex,
    ) -> Result<(Stored, Box<OciImageManifest>), Error> {
        let platform = &self.inner.config.platform;
        let among = match manifest::choose(&reference.to_string(), index, platform)? {
            Choice::Image(entry) => return self.entry(reference, entry).await,
            Choice::Among(among) => among,
        };
        let mut images = Vec::new();
        for entry in among.unnamed {
            images.push(self.entry(reference, entry).await?);
        }
        images.retain(|(_, image)| manifest::is_runnable(image));
        match (images.pop(), among.only_named) {
            (Some(image), _) if images.is_empty() => Ok(image),
            (None, Some(entry)) => self.entry(reference, entry).await,
            _ => Err(among.none),
        }
    }

    /// Reads the image of an entry of an index.
    async fn entry(
        &self,
        reference: &Reference,
        entry: Descriptor,
    ) -> Result<(Stored, Box<OciImageManifest>), Error> {
        let what = reference.to_string();
        let stored = self.manifest(reference, &Selector::Digest(entry.digest)).await?;
        match manifest::parse(&what, &stored.body, stored.media_type.as_deref())? {
            Manifest::Image(image) => Ok((stored, image)),
            Manifest::Index(_) => Err(Error::invalid(what, "an index within an index")),
        }
    }

    /// Downloads a layer into the file `dest`, created if necessary. Bytes that `dest` already
    /// holds are hashed, and the download resumes after them. On success the file holds exactly the
    /// layer and is synced to disk. The file is removed if its content turns out not to be the
    /// layer, and left for the next call if the transfer broke.
    pub async fn fetch_blob(
        &self,
        reference: &Reference,
        layer: &Layer,
        dest: &Path,
    ) -> Result<(), Error> {
        self.fetch_blob_with(reference, layer, dest, &Receiver::default()).await
    }

    /// Like [`Client::fetch_blob`], for a receiver that counts the bytes or grants space for them.
    pub async fn fetch_blob_with(
        &self,
        reference: &Reference,
        layer: &Layer,
        dest: &Path,
        receiver: &Receiver,
    ) -> Result<(), Error> {
        pulled("blob", self.fetch_blob_uncounted(reference, *layer, dest, receiver.clone()).await)
    }

    async fn fetch_blob_uncounted(
        &self,
        reference: &Reference,
        layer: Layer,
        dest: &Path,
        receiver: Receiver,
    ) -> Result<(), Error> {
        let place = self.place(reference)?;
        let dest = dest.to_owned();
        let open = move || Partial::open(&dest, layer, receiver);
        match place {
            Place::Remote(remote) => download(&remote, &layer, blocking(open).await?).await,
            Place::Layout(layout) => blocking(move || layout.copy(layer.digest, open()?)).await,
        }
    }

    /// Reads an image of this machine's platform with its layers, to be pushed as it is. The layers are
    /// in temporary files, which are removed with the returned image.
    pub async fn download(&self, reference: &Reference) -> Result<ImageToPush, Error> {
        let image = self.image(reference).await?;
        let work = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
        let keep = Arc::new(work);
        let mut layers = Vec::new();
        for layer in image.layers {
            let path = keep.path().join(layer.digest.hex());
            self.fetch_blob(reference, &layer, &path).await?;
            let content = Content::File { path, keep: Some(Arc::clone(&keep)) };
            layers.push(LayerToPush { layer, content });
        }
        let original = Some(image.manifest);
        Ok(ImageToPush { layers, config: image.config, annotations: image.annotations, original })
    }

    /// Pushes an image: first the blobs that the repository does not have, last the manifest under
    /// the reference's tag. A reference by digest must name the image's own digest.
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

    /// Deletes the blobs of a layout directory that none of its images uses, unless they are
    /// younger than a minute. A registry decides by itself what it deletes: nothing is done there.
    pub async fn prune(&self, reference: &Reference) -> Result<(), Error> {
        match self.place(reference)? {
            Place::Remote(_) => Ok(()),
            Place::Layout(layout) => blocking(move || layout.prune()).await,
        }
    }

    /// Points `tag` at the manifest that `reference` names, and returns its digest.
    pub async fn tag(&self, reference: &Reference, tag: &Tag) -> Result<Digest, Error> {
        let stored = self.manifest(reference, &reference.selected()).await?;
        self.point(reference, tag, stored).await
    }

    /// Points `tag` at the manifest that `reference` names, provided that the tag now names `from`
    /// and `may_push` then returns true. Returns the digest that the tag names afterwards.
    ///
    /// Registries have no compare-and-set, so the tag is resolved immediately before the push and
    /// after it. A push by somebody else between the first look-up and ours is overwritten; one
    /// after ours stays, and its digest is returned.
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

    /// Reads a blob into memory. Fails if `size`, which its descriptor states, or its content
    /// exceeds `limit` bytes.
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
