//! Metadata of any shape.

use outrigger_features::{
    Metadata, Plan,
    metadata::{Encoding, Entity, Feature, Size},
};
use serde_json::{Value, json};

use super::entropy::Entropy;

/// Names that are easily confused: of the same length, prefix, suffix or both.
const NAMES: [&str; 14] = [
    "a",
    "b",
    "abc",
    "abd",
    "abcd",
    "abcde",
    "feature_1",
    "feature_2",
    "profile.age",
    "naïve",
    "a_feature_with_a_long_name_1",
    "a_feature_with_a_long_name_2",
    "a_feature_with_b_long_name_1",
    "b_feature_with_a_long_name_1",
];
pub(crate) const WORDS: [&str; 6] =
    ["", "a", "web", "phone", "naïve", "a longer word, one of many, of more than 32 bytes"];

/// The properties of a feature that determine a valid value.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) name: String,
    /// The number of values; of a list, the largest one.
    pub(crate) length: usize,
    pub(crate) list: bool,
    pub(crate) taste: Taste,
    /// Whether NaN and infinity are accepted.
    pub(crate) any: bool,
}

impl Sent {
    /// The number of values of a row: nearly always one that the feature accepts.
    pub(crate) fn draw_length(&self, entropy: &mut Entropy<'_>) -> usize {
        match self.list {
            true => entropy.below(self.length + 1) + usize::from(entropy.chance(4)),
            false => self.length,
        }
    }
}

/// The type of value that a feature accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taste {
    Number,
    Integer,
    Flag,
    Text,
    /// Ids with weights.
    Id,
    /// Names of ids with weights.
    Name,
}

impl Taste {
    /// The taste of a value without a weight.
    pub(crate) fn plain(self) -> Self {
        match self {
            Self::Id => Self::Integer,
            Self::Name => Self::Text,
            other => other,
        }
    }
}

pub(crate) fn metadata(entropy: &mut Entropy<'_>) -> Metadata {
    let mut inputs = Vec::new();
    for entity in ["user", "treatment"] {
        let mut names: Vec<_> = NAMES.to_vec();
        entropy.shuffle(&mut names);
        for _ in 0..entropy.below(4) {
            let tensor = format!("t{}", inputs.len());
            inputs.extend(input(tensor, entity, &mut names, entropy));
        }
    }
    let joined = !inputs.is_empty() && entropy.chance(60);
    if joined {
        inputs = join(&inputs, entropy);
    } else if entropy.chance(128) || inputs.is_empty() {
        inputs.push(json!({"tensor": "count", "entity": "treatment_count", "dtype": "int32"}));
    }
    // Without a seed: it is drawn for a request without an id, so no two packings are equal.
    let draws = !joined && entropy.chance(60);
    let kind = if joined { "per_treatment" } else { entropy.one_of(&["per_treatment", "single"]) };
    let mut outputs =
        vec![output("y", "score", kind, entropy), output("z", "other", "per_treatment", entropy)];
    if draws {
        outputs.push(json!({"tensor": "p", "name": "propensity", "kind": "single"}));
    }
    let json = json!({
        "schema": "outrigger.dev/model/v1", "framework": "tensorflow", "inputs": inputs,
        "deterministic": !draws, "outputs": outputs,
    });
    Metadata::parse(json.to_string().as_bytes()).expect("valid")
}

/// The plan of a model that uses every option except a seed, with sparse rows.
pub(crate) fn everything() -> Plan {
    let json = include_bytes!("../metadata/good/everything.json");
    let mut metadata = Metadata::parse(json).expect("valid");
    metadata.inputs.retain(|input| input.entity != Entity::Seed);
    let sparse = include_bytes!("../metadata/good/sparse.json");
    let sparse = Metadata::parse(sparse).expect("valid").inputs.into_iter();
    metadata.inputs.extend(sparse.filter(|input| input.weights.is_some()));
    Plan::compile(metadata)
}

/// The same features in tensors that have those of both entities, in any order.
fn join(inputs: &[Value], entropy: &mut Entropy<'_>) -> Vec<Value> {
    let mut joined: Vec<((Value, bool), Vec<Value>)> = Vec::new();
    for input in inputs {
        let sparse = input["weights"].is_string();
        let features = input["features"].as_array().expect("features").iter().cloned();
        let features = features.map(|mut feature| {
            feature["entity"] = input["entity"].clone();
            if feature["max"].is_number() && !sparse {
                feature["padding"] = padding(input["dtype"].as_str().expect("a type"));
            }
            feature
        });
        let form = (input["dtype"].clone(), sparse);
        match joined.iter_mut().find(|(other, _)| *other == form) {
            Some((_, all)) => all.extend(features),
            None => joined.push((form, features.collect())),
        }
    }
    let tensor = |(index, (form, mut features)): (usize, ((Value, bool), Vec<Value>))| {
        entropy.shuffle(&mut features);
        let (tensor, (dtype, sparse)) = (format!("t{index}"), form);
        let mut input =
            json!({"tensor": tensor, "entity": "joined", "dtype": dtype, "features": features});
        if sparse {
            make_sparse(&mut input, &tensor);
        }
        input
    };
    joined.into_iter().enumerate().map(tensor).collect()
}

/// Names the tensors with the weights and the lengths of sparse rows.
fn make_sparse(input: &mut Value, tensor: &str) {
    input["weights"] = json!(format!("{tensor}_weights"));
    input["lengths"] = json!(format!("{tensor}_lengths"));
}

/// An output, sometimes of several columns.
fn output(tensor: &str, name: &str, kind: &str, entropy: &mut Entropy<'_>) -> Value {
    let mut output = json!({"tensor": tensor, "name": name, "kind": kind});
    if entropy.chance(60) {
        let width = 1 + entropy.below(4);
        output["width"] = json!(width);
        output["score"] = json!({"column": entropy.below(width)});
    }
    output
}

fn input(
    tensor: String,
    entity: &str,
    names: &mut Vec<&str>,
    entropy: &mut Entropy<'_>,
) -> Option<Value> {
    let dtype =
        entropy.one_of(&["float32", "float32", "float64", "int32", "int64", "bool", "string"]);
    let ragged = entropy.chance(40);
    let sparse = !ragged && entropy.chance(40);
    let dtype = if sparse { "int64" } else { dtype };
    let count = if ragged { 1 } else { 1 + entropy.below(4) };
    let names = names.split_off(names.len().saturating_sub(count));
    let feature = |name: &&str| match sparse {
        true => sparse_feature(name, entropy),
        false => feature(name, dtype, ragged, entropy),
    };
    let features: Vec<_> = names.iter().map(feature).collect();
    let lengths = ragged.then(|| format!("{tensor}_lengths"));
    let mut input =
        json!({"tensor": tensor, "entity": entity, "dtype": dtype, "features": features});
    if let Some(lengths) = lengths {
        input["lengths"] = json!(lengths);
    }
    if sparse {
        let tensor = input["tensor"].as_str().expect("a name").to_owned();
        make_sparse(&mut input, &tensor);
    }
    (!features.is_empty()).then_some(input)
}

/// An element of a tensor, as the padding of lists.
fn padding(dtype: &str) -> Value {
    match dtype {
        "bool" => json!(true),
        "string" => json!("padding"),
        "int32" | "int64" => json!(-1),
        _ => json!(-0.5),
    }
}

/// A feature of sparse rows.
fn sparse_feature(name: &str, entropy: &mut Entropy<'_>) -> Value {
    let mut feature = json!({"name": name});
    if entropy.chance(60) {
        feature["allow_non_finite"] = json!(true);
    }
    let (length, default) = if entropy.chance(80) {
        feature["id"] = json!(entropy.one_of(&[0, 7, u64::MAX]));
        (1, json!(0.25))
    } else {
        let length = 1 + entropy.below(4);
        feature["max"] = json!(length);
        (length, sparse_encoding(&mut feature, entropy))
    };
    match entropy.below(4) {
        0 => feature["required"] = json!(true),
        _ => feature["default"] = json!(vec![default; entropy.below(length + 1)]),
    }
    feature
}

/// Sets the encoding of a list of ids; returns a default for it.
fn sparse_encoding(feature: &mut Value, entropy: &mut Entropy<'_>) -> Value {
    let (vocabulary, default) = match entropy.below(6) {
        1 => (json!(["web", "phone", "naïve", WORDS[5]]), json!("phone")),
        2 => (json!([7, -1, 1]), json!(7)),
        3 => (json!({"web": 5, "phone": u64::MAX, "naïve": 5}), json!("web")),
        4 => {
            feature["hash_buckets"] = json!(1000);
            return json!("none");
        }
        _ => return json!(u64::MAX),
    };
    feature["vocabulary"] = vocabulary;
    if entropy.chance(128) {
        feature["out_of_vocabulary"] = json!(u64::MAX - 1);
    }
    default
}

fn feature(name: &str, dtype: &str, ragged: bool, entropy: &mut Entropy<'_>) -> Value {
    let mut feature = json!({"name": name});
    let list = ragged || entropy.chance(40);
    let length = match list {
        true => 1 + entropy.below(4),
        false if entropy.chance(60) => 2 + entropy.below(2),
        false => 1,
    };
    if list {
        feature["max"] = json!(length);
        if !ragged {
            feature["padding"] = padding(dtype);
        }
    } else if length > 1 {
        feature["length"] = json!(length);
    }
    let default = encoding(&mut feature, dtype, entropy);
    let float = dtype.starts_with("float");
    if float && entropy.chance(60) {
        feature["allow_non_finite"] = json!(true);
    }
    match entropy.below(4) {
        0 => feature["required"] = json!(true),
        1 if float && !ragged => feature["missing"] = json!("nan"),
        _ if list => feature["default"] = json!(vec![default; entropy.below(length + 1)]),
        _ if length == 1 => feature["default"] = default,
        _ => feature["default"] = json!(vec![default; length]),
    }
    feature
}

/// Sets the encoding of a feature; returns a default for it.
fn encoding(feature: &mut Value, dtype: &str, entropy: &mut Entropy<'_>) -> Value {
    // Most floats are numbers, as in most models.
    let is_number = dtype.starts_with("float") && entropy.chance(180);
    match (dtype, if is_number { 0 } else { entropy.below(4) }) {
        ("int32" | "int64" | "float32" | "float64", 1) => {
            feature["vocabulary"] = json!(["web", "phone", "naïve", WORDS[5]]);
            feature["out_of_vocabulary"] = json!(9);
            json!("phone")
        }
        ("int32" | "int64" | "float32" | "float64", 2) => {
            feature["vocabulary"] = json!([7, -1, 1]);
            feature["out_of_vocabulary"] = json!(-1);
            json!(7)
        }
        ("int32" | "int64" | "float32" | "float64", 3) => {
            feature["hash_buckets"] = json!(1000);
            json!("none")
        }
        ("float32" | "float64", _) => json!(0.25),
        ("bool", _) => json!(true),
        ("string", _) => json!("default"),
        _ => json!(3),
    }
}

/// The features of an entity, in order.
pub(crate) fn features(metadata: &Metadata, entity: Entity) -> Vec<Sent> {
    let features = metadata.features_of(entity);
    let sent = |(input, feature): (&outrigger_features::metadata::Input, &Feature)| Sent {
        name: feature.name.to_string(),
        length: feature.length,
        list: !matches!(feature.size, Size::Exact | Size::WeightOf(_)),
        taste: match feature.size {
            Size::WeightOf(_) => Taste::Number,
            Size::Sparse => weighted(taste("int64", &feature.encoding)),
            _ => taste(input.dtype.as_str(), &feature.encoding),
        },
        any: feature.allow_non_finite,
    };
    features.map(sent).collect()
}

/// The taste of ids with weights, where one without them takes values of this taste.
fn weighted(taste: Taste) -> Taste {
    if taste == Taste::Text { Taste::Name } else { Taste::Id }
}

fn taste(dtype: &str, encoding: &Encoding) -> Taste {
    use outrigger_features::metadata::Words;
    match (encoding, dtype) {
        (Encoding::HashBuckets(_), _) | (Encoding::Plain, "string") => Taste::Text,
        (Encoding::Vocabulary { words: Words::Texts(_), .. }, _) => Taste::Text,
        (Encoding::Vocabulary { .. }, _) | (_, "int32" | "int64") => Taste::Integer,
        (_, "bool") => Taste::Flag,
        _ => Taste::Number,
    }
}
