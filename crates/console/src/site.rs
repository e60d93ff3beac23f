//! The check that no other site's page in a user's browser sent a request.
//!
//! A browser sends requests to a listener on its own machine for any page that asks it to. Three
//! headers that pages cannot forge betray them: `Host` (the name in the address; another site's own
//! name if that name resolves to this listener, which is called DNS rebinding), `Origin` and
//! `Sec-Fetch-Site` (the site of the page that asks).

use std::{net::IpAddr, sync::Arc};

use axum::http::{
    HeaderMap, Method, Request, Uri, Version,
    header::{HOST, ORIGIN},
    uri::Authority,
};
use outrigger_core::{Failure, Reason};

/// The addresses under which a listener is its own site.
#[derive(Debug, Clone)]
pub enum Site {
    /// Every request is accepted: the listener makes no changes and has no page.
    Any,
    /// A listener for browsers.
    Own {
        /// Whether callers use TLS. Then a browser has compared the name with the certificate.
        tls: bool,
        /// Names besides `localhost` and IP addresses.
        names: Arc<[String]>,
        /// The setting with these names; `None` if there is none.
        setting: Option<&'static str>,
    },
}

impl Site {
    /// Checks that a request comes from no other site's page.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), Failure> {
        let Self::Own { tls, names, setting } = self else { return Ok(()) };
        let host = host(request.uri(), request.headers());
        // Browsers use HTTP/2 over TLS only, and gRPC clients may call any name.
        let named = *tls || request.version() == Version::HTTP_2;
        let refused = |message: String| Err(Failure::new(Reason::PermissionDenied, message));
        if !named && !host.as_ref().is_some_and(|host| is_own(host.host(), names)) {
            let host = host.map_or_else(|| "none".to_owned(), |host| host.to_string());
            let names = setting.map_or_else(String::new, |key| format!(", or by a name of {key}"));
            return refused(format!(
                "the request is for the host {host}: this listener is called by an IP address or \
                 as localhost{names}"
            ));
        }
        let same = |origin: &str| {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            host.as_ref().is_some_and(|host| authority == Some(host.as_str()))
        };
        match text(request.headers(), ORIGIN.as_str()) {
            Some(origin) if !same(origin) => {
                return refused(format!("a page of another site, {origin}, sent the request"));
            }
            _ => {}
        }
        if is_foreign(request) {
            return refused("a page of another site sent the request".to_owned());
        }
        Ok(())
    }
}

/// The host that a request is for: that of its URI over HTTP/2, or else of its header.
fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    uri.authority().cloned().or_else(|| text(headers, HOST.as_str())?.parse().ok())
}

fn is_own(host: &str, names: &[String]) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.trim_end_matches('.');
    address.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| host.eq_ignore_ascii_case(name))
}

/// Whether the browser says that another site's page caused the request. Links to this listener on
/// other pages are fine: their page does not see the answer.
fn is_foreign<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let header = |name| text(headers, name).unwrap_or_default();
    let followed = request.method() == Method::GET
        && header("sec-fetch-mode") == "navigate"
        && header("sec-fetch-dest") == "document";
    !followed && !matches!(header("sec-fetch-site"), "" | "same-origin" | "none")
}

/// The value of a header, `""` if it is no text.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::get("/ui").version(Version::HTTP_11);
        let with = |request: axum::http::request::Builder, (name, value): &(&str, &str)| {
            request.header(*name, *value)
        };
        headers.iter().fold(request, with).body(()).unwrap()
    }

    fn accepts(site: &Site, request: &Request<()>) -> bool {
        site.check(request).is_ok()
    }

    fn plain() -> Site {
        Site::Own {
            tls: false,
            names: ["Admin.Example".to_owned()].into(),
            setting: Some("server.admin_names"),
        }
    }

    #[test]
    fn a_host_is_an_address_localhost_or_a_configured_name() {
        for host in [
            "127.0.0.1:9901",
            "127.0.0.1",
            "[::1]:9901",
            "10.1.2.3:80",
            "LOCALHOST:1",
            "localhost.",
            "admin.example:9901",
        ] {
            assert!(accepts(&plain(), &get(&[("host", host)])), "{host}");
        }
        for host in ["evil.example:9901", "localhost.evil.example", "127.0.0.1.evil.example", "a b"]
        {
            assert!(!accepts(&plain(), &get(&[("host", host)])), "{host}");
        }
        assert!(!accepts(&plain(), &get(&[])), "browsers send one");
    }

    #[test]
    fn the_name_counts_only_where_a_browser_has_not_checked_it() {
        let foreign = [("host", "outrigger.models.svc:9901")];
        assert!(accepts(&Site::Own { tls: true, names: [].into(), setting: None }, &get(&foreign)));
        let mut over_http2 = get(&foreign);
        *over_http2.version_mut() = Version::HTTP_2;
        assert!(accepts(&plain(), &over_http2));
        assert!(accepts(&Site::Any, &get(&foreign)));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let host = ("host", "localhost:9901");
        for (origin, own) in [
            ("http://localhost:9901", true),
            ("http://localhost:8000", false),
            ("https://evil.example", false),
            ("null", false),
            ("", false),
        ] {
            let request = get(&[host, ("origin", origin)]);
            assert_eq!(accepts(&plain(), &request), own, "{origin:?}");
        }
        let tls = Site::Own { tls: true, names: [].into(), setting: None };
        assert!(!accepts(&tls, &get(&[host, ("origin", "https://evil.example")])));
    }

    #[test]
    fn requests_for_other_sites_are_refused_and_links_are_followed() {
        let host = ("host", "localhost:9901");
        for (site, mode, dest, accepted) in [
            ("same-origin", "cors", "empty", true),
            ("none", "navigate", "document", true),
            ("cross-site", "no-cors", "image", false),
            ("same-site", "cors", "empty", false),
            ("cross-site", "navigate", "document", true),
            ("cross-site", "navigate", "iframe", false),
        ] {
            let headers = [
                host,
                ("sec-fetch-site", site),
                ("sec-fetch-mode", mode),
                ("sec-fetch-dest", dest),
            ];
            let mut request = get(&headers);
            assert_eq!(accepts(&plain(), &request), accepted, "{site} {mode} {dest}");
            *request.method_mut() = Method::POST;
            let own = matches!(site, "same-origin" | "none");
            assert_eq!(accepts(&plain(), &request), own, "POST {site}");
        }
    }
}
