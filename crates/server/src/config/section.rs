//! Sections of settings: one declaration generates the type, its defaults, its reader and its lines
//! in the reference page.

use super::layers::Layers;

/// One key of a section, for the reference page.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name within the section.
    pub name: &'static str,
    /// The kind of value that the key takes.
    pub kind: &'static str,
    /// The default as written in a file; `None` if the key is required.
    pub default: Option<&'static str>,
    /// A description of the setting.
    pub about: &'static str,
    /// Whether a change of it takes effect without a restart.
    pub reloads: bool,
}

/// A group of settings with a name in the file.
pub(super) trait Section: Sized {
    /// A description of the section.
    const ABOUT: &'static str;
    /// Its keys in the order of declaration.
    const KEYS: &'static [Key];

    /// Reads the section called `name`. Every problem is recorded in `layers`, and the default is
    /// used in its place.
    fn read(layers: &mut Layers, name: &str) -> Self;
}

/// Declares a section: fields with their documentation and their default, written as in the
/// configuration file, and `reloads` after those that can change at run time.
macro_rules! section {
    (@reloads) => { false };
    (@reloads reloads) => { true };
    ($(#[doc = $about:literal])+ $section:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:literal $($reloads:ident)?;)*
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $section {
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($field: $crate::config::layers::default_value($default),)* }
            }
        }

        impl $crate::config::section::Section for $section {
            const ABOUT: &'static str = concat!($($about),+);
            const KEYS: &'static [$crate::config::section::Key] = &[$(
                $crate::config::section::Key {
                    name: stringify!($field),
                    kind: <$type as $crate::config::value::Setting>::KIND,
                    default: Some($default),
                    about: concat!($($doc),+),
                    reloads: $crate::config::section::section!(@reloads $($reloads)?),
                },
            )*];

            fn read(layers: &mut $crate::config::layers::Layers, name: &str) -> Self {
                let default = Self::default();
                Self { $($field: layers.take(name, stringify!($field), default.$field),)* }
            }
        }
    };
}

pub(super) use section;
