//! The contents of an image: `outrigger inspect`.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use bytesize::ByteSize;
use outrigger_core::{DType, Digest, LayerKind, Shape, TensorSpec, printable};
use outrigger_features::Metadata;
use outrigger_lifecycle::ModelFiles;
use outrigger_oci::{Client, Progress, Reference, signature::PublicKey};
use outrigger_run::Framework;
use serde::Serialize;

use crate::{
    Error,
    fetch::{self, Fetched, Source},
    framework::framework,
    output::Table,
};

/// An image, its package and its model's signature.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The digest that the reference resolves to.
    pub digest: String,
    /// The fingerprint of the key that signs the image, if keys were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// The digest of this platform's manifest.
    pub platform_digest: String,
    /// Size of the packed layers in bytes.
    pub packed_bytes: u64,
    /// Size of the unpacked package in bytes.
    pub unpacked_bytes: u64,
    /// The layers, lowest first.
    pub layers: Vec<LayerReport>,
    /// The labels of the image's configuration.
    pub labels: BTreeMap<String, String>,
    /// The signature that requests use.
    pub signature_name: String,
    /// The control of an uplift model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplift: Option<String>,
    /// The place of each feature in the tensors.
    pub features: Vec<FeatureReport>,
    /// The model's inputs.
    pub inputs: Vec<TensorReport>,
    /// The model's outputs.
    pub outputs: Vec<TensorReport>,
}

/// One layer.
#[derive(Debug, Serialize)]
pub struct LayerReport {
    /// Its digest.
    pub digest: String,
    /// Packed size in bytes.
    pub bytes: u64,
    /// The layer's format.
    pub kind: LayerKind,
}

/// A feature and its place in a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeatureReport {
    /// The tensor that holds the feature.
    pub tensor: String,
    /// `user` or `treatment`.
    pub entity: &'static str,
    /// Its name in requests.
    pub name: String,
    /// Its first position in the tensor's last dimension.
    pub offset: usize,
    /// Its number of positions; of a list, its largest number of values.
    pub length: usize,
    /// True if the tensor has the values of lists, and another one their lengths.
    pub ragged: bool,
    /// The tensor's element type.
    pub dtype: DType,
}

/// One input or output of the signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorReport {
    /// Its name in the signature.
    pub name: String,
    /// The element type, as metadata.json and other reports call it.
    pub dtype: String,
    /// Its sizes, -1 if unknown; null if the rank is unknown.
    pub shape: Option<Vec<i64>>,
}

/// Fetches `source` and reports its contents. With `keys`, it first verifies that one of
/// them signs the image.
pub async fn inspect(
    client: &Client,
    source: &Source,
    keys: &[PublicKey],
    frameworks: &[Framework],
    progress: &Progress,
) -> Result<Report, Error> {
    let (source, key) = match source {
        _ if keys.is_empty() => (source.clone(), None),
        Source::Image(image) => {
            let (digest, key) = verify(client, image, keys).await?;
            // Uses the verified digest, because the tag may move in the meantime.
            (Source::Image(image.with_digest(digest)), Some(key))
        }
        Source::Directory(_) => {
            return Err(Error::Usage("a directory has no signature; give an image".to_owned()));
        }
    };
    let report = report(&fetch::fetch(client, &source, frameworks, progress).await?, frameworks)?;
    Ok(Report { signed_by: key.map(|key| key.fingerprint().to_string()), ..report })
}

/// Reads the public keys from files.
pub fn read_keys(files: &[PathBuf]) -> Result<Vec<PublicKey>, Error> {
    let mut keys = Vec::new();
    for file in files {
        let read = PublicKey::read(file);
        keys.extend(read.map_err(|error| Error::Usage(format!("{}: {error}", file.display())))?);
    }
    Ok(keys)
}

/// The digest that `image` resolves to, and the key that signs it.
async fn verify<'a>(
    client: &Client,
    image: &Reference,
    keys: &'a [PublicKey],
) -> Result<(Digest, &'a PublicKey), Error> {
    let failed = |error: outrigger_oci::Error| error.failure();
    let digest = client.resolve(image).await.map_err(failed)?;
    let mut signatures = client.tagged_signatures(image, digest).await.map_err(failed)?;
    signatures.extend(client.attached_signatures(image, digest).await.map_err(failed)?);
    let key = signatures.verify(digest, keys).map_err(|error| error.failure())?;
    Ok((digest, key))
}

fn report(fetched: &Fetched, frameworks: &[Framework]) -> Result<Report, Error> {
    let Fetched { image, tree, .. } = fetched;
    let ModelFiles { metadata, interface, .. } =
        ModelFiles::read(tree, |name| framework(frameworks, name))?;
    let layers = image.layers.iter().map(|layer| LayerReport {
        digest: layer.digest.to_string(),
        bytes: layer.size,
        kind: layer.kind,
    });
    Ok(Report {
        digest: image.digest.to_string(),
        signed_by: None,
        platform_digest: image.platform_digest.to_string(),
        packed_bytes: image.packed_size(),
        unpacked_bytes: tree.size().as_u64(),
        layers: layers.collect(),
        labels: image.labels.clone(),
        signature_name: metadata.signature.to_string(),
        uplift: metadata.uplift.as_ref().map(ToString::to_string),
        features: features(&metadata),
        inputs: interface.inputs.iter().map(tensor).collect(),
        outputs: interface.outputs.iter().map(tensor).collect(),
    })
}

/// The features of a package, in the order of metadata.json.
pub(crate) fn features(metadata: &Metadata) -> Vec<FeatureReport> {
    let mut reports = Vec::new();
    for input in &metadata.inputs {
        let mut offset = 0;
        for feature in &input.features {
            reports.push(FeatureReport {
                tensor: input.tensor.to_string(),
                entity: feature.entity.as_str(),
                name: feature.name.to_string(),
                offset,
                length: feature.length,
                ragged: input.lengths.is_some(),
                dtype: input.dtype,
            });
            offset += feature.length;
        }
    }
    reports
}

/// A tensor of a model's interface.
pub(crate) fn tensor(spec: &TensorSpec) -> TensorReport {
    let size = |size: &Option<u64>| size.and_then(|size| i64::try_from(size).ok()).unwrap_or(-1);
    let shape = match &spec.shape {
        Shape::Any => None,
        Shape::Sizes(sizes) => Some(sizes.iter().map(size).collect()),
    };
    TensorReport { name: spec.name.to_string(), dtype: spec.dtype.to_string(), shape }
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "digest     {}", self.digest)?;
        if let Some(key) = &self.signed_by {
            writeln!(text, "signed by  {key}")?;
        }
        if self.platform_digest != self.digest {
            writeln!(text, "platform   {}", self.platform_digest)?;
        }
        let (packed, unpacked) = (size(self.packed_bytes), size(self.unpacked_bytes));
        writeln!(text, "size       {packed} packed, {unpacked} on disk")?;
        for (name, value) in &self.labels {
            writeln!(text, "label      {}", printable(format!("{name}={value}")))?;
        }
        if let Some(uplift) = &self.uplift {
            writeln!(text, "uplift     {}", printable(uplift.clone()))?;
        }
        let mut layers = Table::new(&["LAYER", "KIND", "SIZE"]);
        for layer in &self.layers {
            layers.row([layer.digest.clone(), packing(layer.kind).to_owned(), size(layer.bytes)]);
        }
        let mut features = Table::new(&["FEATURE", "ENTITY", "TENSOR", "AT", "DTYPE"]);
        for feature in &self.features {
            features.row([
                feature.name.clone(),
                feature.entity.to_owned(),
                feature.tensor.clone(),
                feature.positions(),
                feature.dtype.to_string(),
            ]);
        }
        let mut signature = Table::new(&["SIGNATURE", "TENSOR", "DTYPE", "SHAPE"]);
        for (direction, tensors) in [("input", &self.inputs), ("output", &self.outputs)] {
            for tensor in tensors {
                signature.row([
                    direction.to_owned(),
                    tensor.name.clone(),
                    tensor.dtype.clone(),
                    tensor.sizes(),
                ]);
            }
        }
        write!(text, "\n{layers}\n{features}\n{signature}")
    }
}

fn packing(kind: LayerKind) -> &'static str {
    match kind {
        LayerKind::Tar => "tar",
        LayerKind::TarGzip => "tar+gzip",
        LayerKind::TarZstd => "tar+zstd",
    }
}

impl FeatureReport {
    /// Its positions in the tensor's last dimension, or the largest number of values of a list.
    pub(crate) fn positions(&self) -> String {
        match self.length {
            most if self.ragged => format!("up to {most}"),
            1 => self.offset.to_string(),
            length => format!("{}..{}", self.offset, self.offset + length),
        }
    }
}

impl TensorReport {
    /// Its sizes as text.
    pub(crate) fn sizes(&self) -> String {
        self.shape.as_ref().map_or_else(|| "?".to_owned(), |sizes| format!("{sizes:?}"))
    }
}

/// A number of bytes in binary units.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}
