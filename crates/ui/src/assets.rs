//! The files of the page.

use std::sync::LazyLock;

use outrigger_console::assets::Assets;

/// The files of the page, embedded in the binary.
pub(crate) static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    Assets::new(outrigger_console::files![
        "index.html" HTML,
        "app.js" SCRIPT,
        "canaries.js" SCRIPT,
        "model.js" SCRIPT,
        "models.js" SCRIPT,
        "overview.js" SCRIPT,
    ])
});

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes of the files: with the first events of the stream, the page must stay below
    /// 150 KB.
    const MOST: usize = 80_000;

    #[test]
    fn the_page_is_small() {
        let bytes = ASSETS.bytes();
        assert!(bytes <= MOST, "{bytes} bytes");
    }

    #[test]
    fn every_file_that_the_page_names_is_there() {
        assert_eq!(ASSETS.missing(), [""; 0]);
    }
}
