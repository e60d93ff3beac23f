//! The files of the page, embedded in the binary.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};

/// A file of a page: its name, its media type and its content.
pub type File = (&'static str, &'static str, &'static str);

/// Media types of files.
pub const HTML: &str = "text/html; charset=utf-8";
/// That of a style sheet.
pub const CSS: &str = "text/css; charset=utf-8";
/// That of a script.
pub const SCRIPT: &str = "text/javascript; charset=utf-8";
/// That of a picture.
pub const SVG: &str = "image/svg+xml";

const INDEX: &str = "index.html";

/// The files of a page, beside those that all pages share. They are in the directory `page` beside
/// the file that uses this.
#[macro_export]
macro_rules! files {
    ($($name:literal $kind:ident),* $(,)?) => {
        &[$(($name, $crate::assets::$kind, include_str!(concat!("page/", $name)))),*]
    };
}

/// The files that all pages share.
const SHARED: &[File] = files![
    "style.css" CSS,
    "icon.svg" SVG,
    "charts.js" SCRIPT,
    "dom.js" SCRIPT,
    "format.js" SCRIPT,
    "stream.js" SCRIPT,
    "theme.js" SCRIPT,
];

/// The files of a page, embedded in the binary, with entity tags.
#[derive(Debug)]
pub struct Assets(BTreeMap<&'static str, Asset>);

#[derive(Debug)]
struct Asset {
    kind: &'static str,
    content: &'static str,
    tag: String,
}

impl Assets {
    /// The files of a page, with those that all pages share. One is `index.html`.
    pub fn new(own: &'static [File]) -> Self {
        let files = own.iter().chain(SHARED);
        let asset = |&(name, kind, content): &File| {
            let tag = tag(content);
            (name, Asset { kind, content, tag })
        };
        Self(files.map(asset).collect())
    }

    /// Serves the page.
    pub fn index(&self, headers: &HeaderMap) -> Response {
        self.file(INDEX, headers)
    }

    /// Serves a file with `no-cache` and an entity tag. Browsers revalidate their copy each time, so
    /// a new binary shows a new page at once, and revalidation is cheap.
    pub fn file(&self, name: &str, headers: &HeaderMap) -> Response {
        let Some(asset) = self.0.get(name) else {
            return (StatusCode::NOT_FOUND, "no such page; there is /ui\n").into_response();
        };
        let kept = [(header::CACHE_CONTROL, "no-cache"), (header::ETAG, &asset.tag)];
        if is_known(headers, &asset.tag) {
            return (StatusCode::NOT_MODIFIED, kept).into_response();
        }
        (kept, [(header::CONTENT_TYPE, asset.kind)], asset.content).into_response()
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> usize {
        self.0.values().map(|asset| asset.content.len()).sum()
    }

    /// The files that a file of the page names and that are not there.
    pub fn missing(&self) -> Vec<&'static str> {
        let quoted = self.0.values().flat_map(|asset| asset.content.split(['"', '\'']));
        let named = quoted.filter_map(|text| text.strip_prefix("./").or(text.strip_prefix("ui/")));
        let files = named.filter(|name| name.contains('.'));
        files.filter(|name| !self.0.contains_key(name)).collect()
    }
}

/// The entity tag of a content; another content has another tag.
fn tag(content: &str) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// True if the browser has this content already.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get_all(header::IF_NONE_MATCH).iter();
    let tags = given.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    tags.map(|known| known.trim().trim_start_matches("W/")).any(|known| known == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_cached_by_the_browser_is_not_sent_again() {
        let assets = Assets::new(&[("index.html", HTML, "<!doctype html>")]);
        let serve = |headers: &HeaderMap| assets.index(headers);
        let mut headers = HeaderMap::new();
        let first = serve(&headers);
        let tag = first.headers()[header::ETAG].clone();
        assert_eq!(first.status(), StatusCode::OK);
        headers.insert(header::IF_NONE_MATCH, tag);
        assert_eq!(serve(&headers).status(), StatusCode::NOT_MODIFIED);
        headers.insert(header::IF_NONE_MATCH, "\"0\"".parse().unwrap());
        assert_eq!(serve(&headers).status(), StatusCode::OK);
    }

    #[test]
    fn files_that_a_page_names_and_lacks_are_found() {
        let page = &[("index.html", HTML, r#"<script src="ui/theme.js"></script> "ui/none.js""#)];
        let assets = Assets::new(page);
        assert_eq!(assets.missing(), ["none.js"]);
        let answer = assets.file("none.js", &HeaderMap::new());
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
}
