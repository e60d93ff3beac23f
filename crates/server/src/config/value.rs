//! The types of settings.

use std::{
    collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration,
};

use outrigger_canary::Layer;
use outrigger_core::{ModelName, Tag};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, de::DeserializeOwned};

use super::access::{CallerName, Callers, Rights, Transport};

/// A type that a setting can have.
pub(crate) trait Setting: Serialize + DeserializeOwned {
    /// The name of this type in the reference page.
    const KIND: &'static str;
}

macro_rules! settings {
    ($($type:ty: $kind:literal;)*) => {
        $(impl Setting for $type { const KIND: &'static str = $kind; })*
    };
}

settings! {
    bool: "true or false";
    u32: "number";
    Option<u32>: "number";
    CallerLimits: "numbers by caller";
    ModelLimits: "numbers by model";
    String: "text";
    Option<String>: "text";
    Vec<String>: "list of texts";
    PathBuf: "path";
    Option<PathBuf>: "path";
    Vec<PathBuf>: "list of paths";
    SocketAddr: "address:port";
    Option<SocketAddr>: "address:port";
    Tag: "tag";
    Size: "size";
    Option<Size>: "size";
    Period: "duration";
    Ratio: "number, 0 to 1";
    LogFormat: "text or json";
    Scheduling: "normal or batch";
    Compression: "none, requests or both";
    CloudIdentity: "none or gcp";
    CanarySettings: "ModelCanaryConfig";
    Transport: "plain, server, optional or mutual";
    Rights: "list of rights";
    Option<Rights>: "list of rights";
    Callers: "rights by caller";
    Vec<SignatureRule>: "list of prefix and keys";
}

/// Numbers by caller.
pub type CallerLimits = BTreeMap<CallerName, u32>;

/// Numbers by model.
pub type ModelLimits = BTreeMap<ModelName, u32>;

/// A number of bytes, written like `20GiB`, `64MB` or `1024`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A span of time, written like `250ms`, `30s` or `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(pub Duration);

/// Some of a canary's settings: `outrigger.v1.ModelCanaryConfig` in its JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct CanarySettings(serde_json::Value);

impl CanarySettings {
    /// The settings as a layer, to be merged over others.
    pub fn layer(&self) -> Layer {
        Layer::from_json(&self.0).expect("it was read as one")
    }
}

impl<'de> Deserialize<'de> for CanarySettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        Layer::from_json(&json).map_err(de::Error::custom)?;
        Ok(Self(json))
    }
}

/// A rule for images that must be signed, with the keys that are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureRule {
    /// The prefix of the images' repositories, as in `images.allowed`.
    pub prefix: String,
    /// Files with public keys in PEM; a signature by one of them is required.
    #[serde(default)]
    pub keys: Vec<PathBuf>,
}

/// A fraction between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Ratio(f64);

/// The value is never NaN, so equality is total.
impl Eq for Ratio {}

impl Ratio {
    /// The fraction as a number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&number) {
            return Ok(Self(number));
        }
        Err(de::Error::custom(format!("{number} is not between 0 and 1")))
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One readable line per event.
    Text,
    /// One JSON object per event.
    Json,
}

/// The kernel's scheduling policy for the threads that serve predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduling {
    /// A thread that wakes up may preempt a running one (`SCHED_OTHER`).
    Normal,
    /// A thread that wakes up waits for its turn (`SCHED_BATCH`).
    Batch,
}

/// The identity of the machine or pod for registries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloudIdentity {
    /// None is used.
    None,
    /// The service account in Google Cloud.
    Gcp,
}

/// The messages that may be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No messages.
    None,
    /// Requests.
    Requests,
    /// Requests, and answers to callers that accept it.
    Both,
}

impl From<Scheduling> for outrigger_net::Scheduling {
    fn from(scheduling: Scheduling) -> Self {
        match scheduling {
            Scheduling::Normal => Self::Normal,
            Scheduling::Batch => Self::Batch,
        }
    }
}

impl Size {
    /// The number of bytes, at most `usize::MAX`.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<bytesize::ByteSize>()
            .map(|size| Self(size.as_u64()))
            .map_err(|_| format!("{text:?} is not a size such as 512MiB or 20GiB"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let exact = |(shift, _): &&(u32, &str)| self.0 != 0 && self.0.trailing_zeros() >= *shift;
        match UNITS.iter().find(exact) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|_| format!("{text:?} is not a duration such as 250ms, 30s or 7d"))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u128, &str); 5] =
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
        let millis = self.0.as_millis();
        if millis == 0 || !self.0.subsec_nanos().is_multiple_of(1_000_000) {
            return write!(f, "{}", humantime::format_duration(self.0));
        }
        let (length, unit) = UNITS
            .iter()
            .find(|(length, _)| millis.is_multiple_of(*length))
            .expect("1 divides everything");
        write!(f, "{}{unit}", millis / length)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 512MiB or 20GiB")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Period;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, such as 250ms, 30s or 7d")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Period, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_back_as_they_were_meant() {
        for (text, bytes, shown) in [
            ("20GiB", 20 << 30, "20GiB"),
            ("64 MiB", 64 << 20, "64MiB"),
            ("1MB", 1_000_000, "1000000"),
            ("0", 0, "0"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown), "{text}");
        }
        for bad in ["", "GiB", "-1", "ten", "5 parsecs"] {
            assert!(bad.parse::<Size>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_ratio_is_part_of_a_whole() {
        for (text, ratio) in [("0", Some(0.0)), ("0.01", Some(0.01)), ("1", Some(1.0))] {
            assert_eq!(serde_json::from_str::<Ratio>(text).ok().map(Ratio::get), ratio, "{text}");
        }
        for bad in ["-0.1", "1.5", "\"half\"", "null"] {
            assert!(serde_json::from_str::<Ratio>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        for (text, shown) in [("30m", "30m"), ("7d", "7d"), ("90s", "90s"), ("1h 30m", "90m")] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), shown);
        }
        assert_eq!("0s".parse::<Period>().unwrap().to_string(), "0s");
        assert_eq!("1us".parse::<Period>().unwrap().to_string(), "1us");
        for bad in ["", "30", "-1s", "soon"] {
            assert!(bad.parse::<Period>().is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<Period>("30").is_err());
    }
}
