//! The paths of the protocol.

use std::fmt;

/// The prefix of all paths.
const ROOT: &str = "/v2";

/// The resource that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// The server's metadata.
    Server,
    /// True if the server runs.
    Live,
    /// True if the server is ready.
    Ready,
    /// The statistics of all models.
    Statistics,
    /// The index of the model repository.
    Index,
    /// Loading a model.
    Load(String),
    /// Unloading a model.
    Unload(String),
    /// Something about one model.
    Model(ModelPath, OfModel),
}

/// A model in a path. Its name may contain slashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelPath {
    /// The model's name.
    pub name: String,
    /// The version; `None` if the server chooses it.
    pub version: Option<String>,
}

/// The part of a model's resources that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OfModel {
    Metadata,
    Ready,
    Infer,
    Statistics,
}

/// The method of HTTP that a resource takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Get,
    Post,
}

impl OfModel {
    const ALL: [Self; 4] = [Self::Metadata, Self::Ready, Self::Infer, Self::Statistics];

    /// The end of the path.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Metadata => "",
            Self::Ready => "/ready",
            Self::Infer => "/infer",
            Self::Statistics => "/stats",
        }
    }
}

impl Verb {
    /// The name of the method.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

impl Resource {
    /// The resource of a request path, which may be escaped and may end with a slash; `None` if the
    /// protocol has no such path.
    pub fn parse(path: &str) -> Option<Self> {
        let path = path.strip_prefix(ROOT)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        match path {
            "" => return Some(Self::Server),
            "/health/live" => return Some(Self::Live),
            "/health/ready" => return Some(Self::Ready),
            "/models/stats" => return Some(Self::Statistics),
            "/repository/index" => return Some(Self::Index),
            _ => {}
        }
        if let Some(model) = path.strip_prefix("/repository/models/") {
            let name = |suffix: &str| model.strip_suffix(suffix).and_then(unescaped);
            return name("/load").map(Self::Load).or_else(|| name("/unload").map(Self::Unload));
        }
        let model = path.strip_prefix("/models/")?;
        let of_suffix = |of: &OfModel| *of != OfModel::Metadata && model.ends_with(of.suffix());
        let of = OfModel::ALL.into_iter().find(of_suffix).unwrap_or(OfModel::Metadata);
        let model = model.strip_suffix(of.suffix())?;
        Some(Self::Model(ModelPath::parse(model)?, of))
    }

    /// The method that the resource takes.
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Server | Self::Live | Self::Ready | Self::Statistics => Verb::Get,
            Self::Model(_, OfModel::Metadata | OfModel::Ready | OfModel::Statistics) => Verb::Get,
            Self::Index | Self::Load(_) | Self::Unload(_) => Verb::Post,
            Self::Model(_, OfModel::Infer) => Verb::Post,
        }
    }
}

impl ModelPath {
    fn parse(path: &str) -> Option<Self> {
        match path.rsplit_once("/versions/") {
            None => Some(Self { name: unescaped(path)?, version: None }),
            Some((_, version)) if version.contains('/') => None,
            Some((name, version)) => {
                Some(Self { name: unescaped(name)?, version: Some(unescaped(version)?) })
            }
        }
    }
}

/// The path of the resource, escaped.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ROOT)?;
        match self {
            Self::Server => Ok(()),
            Self::Live => f.write_str("/health/live"),
            Self::Ready => f.write_str("/health/ready"),
            Self::Statistics => f.write_str("/models/stats"),
            Self::Index => f.write_str("/repository/index"),
            Self::Load(model) => write!(f, "/repository/models/{}/load", escaped(model)),
            Self::Unload(model) => write!(f, "/repository/models/{}/unload", escaped(model)),
            Self::Model(ModelPath { name, version }, of) => {
                write!(f, "/models/{}", escaped(name))?;
                if let Some(version) = version {
                    write!(f, "/versions/{}", escaped(version))?;
                }
                f.write_str(of.suffix())
            }
        }
    }
}

/// The text without escapes (RFC 3986, section 2.1); `None` if it is empty, an escape is not valid,
/// or the text is not in UTF-8.
fn unescaped(text: &str) -> Option<String> {
    let (mut plain, mut bytes) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(plain).ok().filter(|plain| !plain.is_empty())
}

/// The text with escapes for all characters but those that need none in a path, and slashes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'/' => {
                escaped.push(byte.into());
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, version: Option<&str>) -> ModelPath {
        ModelPath { name: name.to_owned(), version: version.map(str::to_owned) }
    }

    #[test]
    fn every_path_names_its_resource() {
        let of = |name: &str, version, of| Resource::Model(model(name, version), of);
        let digest = "sha256:00ff";
        let resources = [
            ("/v2", Resource::Server, "GET"),
            ("/v2/health/live", Resource::Live, "GET"),
            ("/v2/health/ready", Resource::Ready, "GET"),
            ("/v2/models/stats", Resource::Statistics, "GET"),
            ("/v2/repository/index", Resource::Index, "POST"),
            ("/v2/repository/models/a/b/load", Resource::Load("a/b".to_owned()), "POST"),
            ("/v2/repository/models/m/unload", Resource::Unload("m".to_owned()), "POST"),
            ("/v2/models/a/b", of("a/b", None, OfModel::Metadata), "GET"),
            ("/v2/models/m/ready", of("m", None, OfModel::Ready), "GET"),
            ("/v2/models/m/infer", of("m", None, OfModel::Infer), "POST"),
            ("/v2/models/m/stats", of("m", None, OfModel::Statistics), "GET"),
            ("/v2/models/m/versions/7", of("m", Some("7"), OfModel::Metadata), "GET"),
            (
                "/v2/models/a/b/versions/sha256:00ff/infer",
                of("a/b", Some(digest), OfModel::Infer),
                "POST",
            ),
        ];
        for (path, resource, verb) in resources {
            assert_eq!(Resource::parse(path).as_ref(), Some(&resource), "{path}");
            assert_eq!(Resource::parse(&format!("{path}/")).as_ref(), Some(&resource), "{path}");
            assert_eq!((resource.to_string().as_str(), resource.verb().as_str()), (path, verb));
        }
    }

    #[test]
    fn other_paths_name_nothing() {
        let others = [
            "",
            "/",
            "/v1",
            "/v2x",
            "/v2//",
            "/v2/models",
            "/v2/models/",
            "/v2/models//infer",
            "/v2/models/m/versions//infer",
            "/v2/models/m/versions/1/other",
            "/v2/repository/models/m",
            "/v2/repository/models//load",
            "/v2/models/%zz",
            "/v2/models/%f",
            "/v2/models/%ff",
        ];
        for path in others {
            assert_eq!(Resource::parse(path), None, "{path}");
        }
    }

    #[test]
    fn names_are_escaped() {
        let path = Resource::Model(model("é m/%", Some("a:b")), OfModel::Infer);
        assert_eq!(path.to_string(), "/v2/models/%C3%A9%20m/%25/versions/a:b/infer");
        assert_eq!(Resource::parse(&path.to_string()), Some(path));
        let escaped = Resource::parse("/v2/models/a%2Fb/versions/sha256%3a0/ready");
        assert_eq!(escaped, Some(Resource::Model(model("a/b", Some("sha256:0")), OfModel::Ready)));
    }
}
