//! Fixtures for the tests of this crate.

use std::{fs, path::PathBuf};

use bytesize::ByteSize;
use outrigger_core::{
    Digest, EngineId, LayerKind, ModelName, PackageLayout, ServableId, ServableName, Version,
};
use outrigger_testkit::layers::{BuiltLayer, LayerBuilder, package_layer};
use tempfile::TempDir;

use crate::{Config, Package, Result, Serving, Store, Tree};

/// The model's directory in an image.
pub(crate) const MODEL: &str = "data/tensorflow_serving_model/model";

/// The layout of the packages that the tests make.
pub(crate) const LAYOUT: PackageLayout = PackageLayout {
    directory: "tensorflow_serving_model/model",
    files: &["saved_model.pb"],
    parts: &[],
    max_file: 2 << 30,
    versioned: true,
};

/// A store in a directory of its own.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) dir: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A store in memory where the system has a directory there: syncing costs nothing.
    pub(crate) fn in_memory() -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let dir = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
        Self::at(dir.expect("a directory"), |_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::at(tempfile::tempdir().expect("a directory"), change)
    }

    fn at(dir: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(dir.path().join("store"));
        config.layouts = [("tensorflow", LAYOUT)].into_iter().collect();
        change(&mut config);
        Self { store: Store::open(config).expect("a new store"), dir }
    }

    /// The directory of the default engine.
    pub(crate) fn serving(&self) -> Serving {
        self.store.serving(&EngineId::default(), None).expect("a directory")
    }

    /// Opens the store again, as the next process does.
    pub(crate) fn reopen(self) -> Self {
        let Self { store, dir } = self;
        let config = Config::new(store.path());
        drop(store);
        Self { store: Store::open(config).expect("opens again"), dir }
    }

    pub(crate) fn of_size(max_size: ByteSize) -> Self {
        Self::with(|config| config.max_size = max_size)
    }

    /// Puts a layer into the store as a pull does.
    pub(crate) fn add(&self, layer: &BuiltLayer) {
        fs::write(self.store.partial(&layer.digest), &layer.bytes).expect("room");
        self.store.commit_blob(&layer.digest).expect("it was written");
    }

    /// Adds the layers and unpacks them as one image.
    pub(crate) fn unpack(&self, layers: &[BuiltLayer]) -> Result<Tree> {
        layers.iter().for_each(|layer| self.add(layer));
        self.store.unpack(&package(layers), &|_| false)
    }

    /// Unpacks plain archives on top of a good package.
    pub(crate) fn unpack_on_package(&self, upper: &[LayerBuilder]) -> Result<Tree> {
        let mut layers = vec![good().build(LayerKind::Tar)];
        layers.extend(upper.iter().map(|layer| layer.build(LayerKind::Tar)));
        self.unpack(&layers)
    }

    /// The names in a directory of the store, sorted.
    pub(crate) fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).expect("a directory");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<_> = entries.map(|entry| name(entry.expect("readable"))).collect();
        names.sort();
        names
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.store.path().join(path)
    }
}

/// A valid package.
pub(crate) fn good() -> LayerBuilder {
    package_layer(b"{}", b"model")
}

/// An image of these layers; its digest depends on them.
pub(crate) fn package(layers: &[BuiltLayer]) -> Package {
    let digests: String = layers.iter().map(|layer| layer.digest.to_string()).collect();
    Package {
        digest: Digest::of(digests.as_bytes()),
        platform_digest: Digest::of(b"platform"),
        labels: [("a.label".to_owned(), "its value".to_owned())].into(),
        layers: layers.iter().map(|layer| (layer.digest, layer.kind)).collect(),
    }
}

pub(crate) fn servable(model: &str, version: i64) -> ServableId {
    let model: ModelName = model.parse().expect("a valid name");
    ServableId { name: ServableName::of(&model), version: Version(version) }
}
