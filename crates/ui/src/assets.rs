//! The files of the page, embedded in the binary.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::LazyLock,
};

use axum::{
    extract::Path,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const INDEX: &str = "index.html";

/// Lists the files with name, type and content.
macro_rules! files {
    ($($name:literal $kind:ident),* $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("page/", $name)))),*]
    };
}

const FILES: &[(&str, &str, &str)] = files![
    "index.html" HTML,
    "style.css" CSS,
    "icon.svg" SVG,
    "app.js" SCRIPT,
    "canaries.js" SCRIPT,
    "charts.js" SCRIPT,
    "dom.js" SCRIPT,
    "format.js" SCRIPT,
    "model.js" SCRIPT,
    "models.js" SCRIPT,
    "overview.js" SCRIPT,
    "stream.js" SCRIPT,
    "theme.js" SCRIPT,
];

struct Asset {
    kind: &'static str,
    content: &'static str,
    tag: String,
}

static ASSETS: LazyLock<BTreeMap<&'static str, Asset>> = LazyLock::new(|| {
    let asset = |&(name, kind, content)| (name, Asset { kind, content, tag: tag(content) });
    FILES.iter().map(asset).collect()
});

/// The entity tag of a content; another content has another tag.
fn tag(content: &str) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// Serves the page.
pub(crate) async fn index(headers: HeaderMap) -> Response {
    serve(INDEX, &headers)
}

/// Serves a file of the page.
pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    serve(&name, &headers)
}

/// Serves a file with `no-cache` and an entity tag. Browsers revalidate their copy each time, so a
/// new binary shows a new page at once, and revalidation is cheap.
fn serve(name: &str, headers: &HeaderMap) -> Response {
    let Some(asset) = ASSETS.get(name) else {
        return (StatusCode::NOT_FOUND, "no such page; there is /ui\n").into_response();
    };
    let kept = [(header::CACHE_CONTROL, "no-cache"), (header::ETAG, &asset.tag)];
    if is_known(headers, &asset.tag) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, [(header::CONTENT_TYPE, asset.kind)], asset.content).into_response()
}

/// Whether the browser has this content already.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get_all(header::IF_NONE_MATCH).iter();
    let tags = given.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    tags.map(|known| known.trim().trim_start_matches("W/")).any(|known| known == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes of the files: with the first events of the stream, the page must stay below
    /// 150 KB.
    const MOST: usize = 80_000;

    #[test]
    fn the_page_is_small() {
        let bytes: usize = ASSETS.values().map(|asset| asset.content.len()).sum();
        assert!(bytes <= MOST, "{bytes} bytes");
    }

    #[test]
    fn every_file_that_the_page_names_is_there() {
        for asset in ASSETS.values() {
            let quoted = asset.content.split(['"', '\'']);
            let named =
                quoted.filter_map(|text| text.strip_prefix("./").or(text.strip_prefix("ui/")));
            for name in named.filter(|name| name.contains('.')) {
                assert!(ASSETS.contains_key(name), "{name} is missing");
            }
        }
    }

    #[test]
    fn content_cached_by_the_browser_is_not_sent_again() {
        let mut headers = HeaderMap::new();
        let first = serve(INDEX, &headers);
        let tag = first.headers()[header::ETAG].clone();
        assert_eq!(first.status(), StatusCode::OK);
        headers.insert(header::IF_NONE_MATCH, tag);
        assert_eq!(serve(INDEX, &headers).status(), StatusCode::NOT_MODIFIED);
        headers.insert(header::IF_NONE_MATCH, "\"0\"".parse().unwrap());
        assert_eq!(serve(INDEX, &headers).status(), StatusCode::OK);
    }
}
