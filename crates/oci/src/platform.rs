//! The platform whose image is taken from an index.

/// A platform, as an image index names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// The operating system, such as `linux`.
    pub os: String,
    /// The architecture by Go's name: `amd64`, `arm64`.
    pub architecture: String,
    /// The variants of the architecture that this machine runs, the preferred one first. An image
    /// without a variant comes before all of them.
    pub variants: Vec<String>,
}

impl Platform {
    /// The order in which an image for this platform is preferred, 0 first; `None` if it does not
    /// run here.
    pub(crate) fn rank(&self, theirs: &oci_client::manifest::Platform) -> Option<usize> {
        let same = theirs.os.to_string() == self.os
            && theirs.architecture.to_string() == self.architecture;
        match theirs.variant.as_deref().unwrap_or_default() {
            _ if !same => None,
            "" => Some(0),
            variant => Some(1 + self.variants.iter().position(|it| it == variant)?),
        }
    }
}

impl Default for Platform {
    /// Linux on this machine's architecture.
    fn default() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            other => other,
        };
        let variants = match architecture {
            "amd64" => [1].into_iter().chain((2..=amd64_level()).rev()).collect(),
            "arm64" => vec![8],
            _ => Vec::new(),
        };
        let variants = variants.iter().map(|level| format!("v{level}")).collect();
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variants }
    }
}

/// The level of x86-64 that this processor has, by the levels of its ABI.
fn amd64_level() -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        let v2 = has!("sse4.2") && has!("ssse3") && has!("popcnt") && has!("cmpxchg16b");
        let vectors = has!("avx2") && has!("fma") && has!("f16c");
        let v3 = v2 && vectors && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("movbe");
        let wide = has!("avx512f") && has!("avx512bw") && has!("avx512cd");
        let v4 = v3 && wide && has!("avx512dq") && has!("avx512vl");
        1 + u8::from(v2) + u8::from(v3) + u8::from(v4)
    }
    #[cfg(not(target_arch = "x86_64"))]
    1
}
