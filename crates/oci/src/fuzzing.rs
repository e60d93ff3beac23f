//! Entry to the reader of manifests, for the fuzz targets.

use crate::{
    Platform,
    manifest::{self, Manifest},
};

/// Reads `document` as a pull does: as a manifest, or an index, and as an image's configuration.
pub fn document(document: &[u8]) {
    const WHAT: &str = "a document";
    let _labels = manifest::labels(WHAT, document);
    let Ok(manifest) = manifest::parse(WHAT, document, None) else { return };
    let _media_type = manifest::media_type(&manifest);
    match manifest {
        Manifest::Index(index) => {
            let chosen = manifest::choose(WHAT, &index, &Platform::default());
            assert!(chosen.is_err() || !index.manifests.is_empty());
        }
        Manifest::Image(image) => {
            let layers = manifest::layers(WHAT, &image);
            assert!(layers.is_err() || layers.is_ok_and(|them| them.len() == image.layers.len()));
        }
    }
}
