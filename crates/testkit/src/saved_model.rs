//! Small SavedModels built from the proto types rather than exported by TensorFlow; TensorFlow
//! loads them. Also the packages around them.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::Path,
};

use outrigger_proto::tensorflow::{
    AttrValue, DataType, GraphDef, MetaGraphDef, NodeDef, SavedModel, SignatureDef, TensorInfo,
    TensorProto, TensorShapeProto, VersionDef, attr_value::Value, meta_graph_def::MetaInfoDef,
    tensor_shape_proto::Dim,
};
use prost::Message as _;
use serde_json::{Value as Json, json};

/// The SavedModel's directory in a package directory.
pub const MODEL_DIR: &str = "tensorflow_serving_model/model";

/// A SavedModel and the metadata.json that describes it.
#[derive(Debug, Clone)]
pub struct Model {
    /// The contents of saved_model.pb.
    pub saved_model: SavedModel,
    /// The contents of metadata.json.
    pub metadata: Json,
}

impl Model {
    /// The bytes of saved_model.pb.
    pub fn encode(&self) -> Vec<u8> {
        self.saved_model.encode_to_vec()
    }

    /// Writes `dir/saved_model.pb`, so that an engine can load `dir` as a version.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("saved_model.pb"), self.encode())
    }
}

/// The model `y = a * x + b`. Signature `serving_default`: `x` and `y`, float32 [-1, 1]. In
/// metadata.json, `x` is a user feature and `y` a single score.
pub fn affine(a: f32, b: f32) -> Model {
    let nodes = vec![
        placeholder("x", DataType::DtFloat, &[-1, 1]),
        floats("a", &[], &[a]),
        floats("b", &[], &[b]),
        float_op("ax", "Mul", &["x", "a"]),
        float_op("y", "AddV2", &["ax", "b"]),
    ];
    let inputs = [("x", DataType::DtFloat, &[-1, 1][..])];
    let outputs = [("y", DataType::DtFloat, &[-1, 1][..])];
    let metadata = json!({
        "schema": "outrigger.dev/model/v1",
        "framework": "tensorflow",
        "signature": "serving_default",
        "inputs": [{"tensor": "x", "entity": "user", "dtype": "float32",
            "features": [{"name": "x", "required": true}]}],
        "outputs": [{"tensor": "y", "name": "score", "kind": "single"}],
    });
    Model { saved_model: saved_model(nodes, &inputs, &outputs), metadata }
}

/// A treatment model: `score = bias + user · u + treatment · t`. With weights and features that are
/// small multiples of powers of two, scores are exact in any order of summation.
///
/// Signature `serving_default`: `user` float32 [-1, U], `treatment` float32
/// [-1, -1, F], `treatment_counts` int32 [-1] -> `scores` float32 [-1, -1].
/// Features are named `u0`, `u1`, … (0 when absent) and `t0`, `t1`, … (required).
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// Weights of the user's features.
    pub user: Vec<f32>,
    /// Weights of a treatment's features.
    pub treatment: Vec<f32>,
    /// The bias of every score.
    pub bias: f32,
}

impl Linear {
    /// The model's score of one treatment.
    pub fn score(&self, user: &[f32], treatment: &[f32]) -> f32 {
        self.bias + dot(&self.user, user) + dot(&self.treatment, treatment)
    }

    /// The model, with its weights as constants.
    pub fn model(&self) -> Model {
        let weights = floats("w", &[self.treatment.len() as i64], &self.treatment);
        self.with_weights(vec![weights])
    }

    /// The model, with the treatments' weights in a variable without a checkpoint: it loads, but
    /// its first run fails.
    pub fn model_without_variables(&self) -> Model {
        let shape = shape(&[self.treatment.len() as i64]);
        let handle = node(
            "handle",
            "VarHandleOp",
            &[],
            [
                ("dtype", Value::Type(DataType::DtFloat.into())),
                ("shape", Value::Shape(shape)),
                ("shared_name", Value::S(b"weights"[..].into())),
                ("container", Value::S(b""[..].into())),
            ],
        );
        let dtype = [("dtype", Value::Type(DataType::DtFloat.into()))];
        self.with_weights(vec![handle, node("w", "ReadVariableOp", &["handle"], dtype)])
    }

    /// Completes the model; `weights` are the nodes up to `w`, which holds the treatments' weights.
    fn with_weights(&self, weights: Vec<NodeDef>) -> Model {
        let (users, features) = (self.user.len() as i64, self.treatment.len() as i64);
        let mut nodes = vec![
            placeholder("user", DataType::DtFloat, &[-1, users]),
            placeholder("treatment", DataType::DtFloat, &[-1, -1, features]),
            placeholder("treatment_counts", DataType::DtInt32, &[-1]),
            floats("u", &[users], &self.user),
            floats("bias", &[], &[self.bias]),
            last_axis(),
        ];
        nodes.extend(weights);
        nodes.extend([
            float_op("weighted_user", "Mul", &["user", "u"]),
            sum("user_part", "weighted_user", true),
            float_op("weighted_treatment", "Mul", &["treatment", "w"]),
            sum("treatment_part", "weighted_treatment", false),
            float_op("offset", "AddV2", &["user_part", "bias"]),
            float_op("scores", "AddV2", &["treatment_part", "offset"]),
        ]);
        let inputs = [
            ("user", DataType::DtFloat, &[-1, users][..]),
            ("treatment", DataType::DtFloat, &[-1, -1, features][..]),
            ("treatment_counts", DataType::DtInt32, &[-1][..]),
        ];
        let outputs = [("scores", DataType::DtFloat, &[-1, -1][..])];
        Model { saved_model: saved_model(nodes, &inputs, &outputs), metadata: self.metadata() }
    }

    fn metadata(&self) -> Json {
        let user = (0..self.user.len()).map(|i| json!({"name": format!("u{i}"), "default": 0}));
        let treatment =
            (0..self.treatment.len()).map(|i| json!({"name": format!("t{i}"), "required": true}));
        json!({
            "schema": "outrigger.dev/model/v1",
            "framework": "tensorflow",
            "signature": "serving_default",
            "inputs": [
                {"tensor": "user", "entity": "user", "dtype": "float32",
                    "features": user.collect::<Vec<_>>()},
                {"tensor": "treatment", "entity": "treatment", "dtype": "float32",
                    "features": treatment.collect::<Vec<_>>()},
                {"tensor": "treatment_counts", "entity": "treatment_count", "dtype": "int32"},
            ],
            "outputs": [{"tensor": "scores", "name": "score", "kind": "per_treatment"}],
        })
    }
}

/// Writes `model` as a package directory: `dir` mirrors an image's `/data`.
pub fn package_dir(dir: &Path, model: &Model) -> io::Result<()> {
    model.write(&dir.join(MODEL_DIR))?;
    fs::write(dir.join("metadata.json"), model.metadata.to_string())
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

type Port<'a> = (&'a str, DataType, &'a [i64]);

/// A SavedModel of one graph; its inputs and outputs are the nodes of these names.
pub fn saved_model(nodes: Vec<NodeDef>, inputs: &[Port<'_>], outputs: &[Port<'_>]) -> SavedModel {
    let ports = |ports: &[Port<'_>]| ports.iter().map(tensor_info).collect();
    let signature = SignatureDef {
        inputs: ports(inputs),
        outputs: ports(outputs),
        method_name: "tensorflow/serving/predict".to_owned(),
        ..Default::default()
    };
    let meta_graph = MetaGraphDef {
        meta_info_def: Some(MetaInfoDef { tags: vec!["serve".to_owned()], ..Default::default() }),
        graph_def: Some(GraphDef {
            node: nodes,
            versions: Some(VersionDef { producer: 1000, min_consumer: 0 }),
        }),
        signature_def: HashMap::from([("serving_default".to_owned(), signature)]),
    };
    SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta_graph] }
}

fn tensor_info(&(name, dtype, sizes): &Port<'_>) -> (String, TensorInfo) {
    let info = TensorInfo {
        name: format!("{name}:0"),
        dtype: dtype.into(),
        tensor_shape: Some(shape(sizes)),
    };
    (name.to_owned(), info)
}

fn shape(sizes: &[i64]) -> TensorShapeProto {
    let dim = sizes.iter().map(|&size| Dim { size, ..Default::default() }).collect();
    TensorShapeProto { dim, unknown_rank: false }
}

/// One operation of a graph.
pub fn node<const N: usize>(
    name: &str,
    op: &str,
    inputs: &[&str],
    attrs: [(&str, Value); N],
) -> NodeDef {
    let attrs = attrs.map(|(name, value)| (name.to_owned(), AttrValue { value: Some(value) }));
    NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|&input| input.to_owned()).collect(),
        attr: attrs.into_iter().collect(),
        ..Default::default()
    }
}

fn placeholder(name: &str, dtype: DataType, sizes: &[i64]) -> NodeDef {
    let attrs = [("dtype", Value::Type(dtype.into())), ("shape", Value::Shape(shape(sizes)))];
    node(name, "Placeholder", &[], attrs)
}

fn floats(name: &str, sizes: &[i64], values: &[f32]) -> NodeDef {
    let tensor = TensorProto { float_val: values.to_vec(), ..Default::default() };
    constant(name, DataType::DtFloat, sizes, tensor)
}

fn last_axis() -> NodeDef {
    let tensor = TensorProto { int_val: vec![-1], ..Default::default() };
    constant("last_axis", DataType::DtInt32, &[], tensor)
}

fn constant(name: &str, dtype: DataType, sizes: &[i64], tensor: TensorProto) -> NodeDef {
    let tensor = TensorProto { dtype: dtype.into(), tensor_shape: Some(shape(sizes)), ..tensor };
    let attrs = [("dtype", Value::Type(dtype.into())), ("value", Value::Tensor(tensor))];
    node(name, "Const", &[], attrs)
}

fn float_op(name: &str, op: &str, inputs: &[&str]) -> NodeDef {
    node(name, op, inputs, [("T", Value::Type(DataType::DtFloat.into()))])
}

fn sum(name: &str, input: &str, keep_dims: bool) -> NodeDef {
    let attrs = [
        ("T", Value::Type(DataType::DtFloat.into())),
        ("Tidx", Value::Type(DataType::DtInt32.into())),
        ("keep_dims", Value::B(keep_dims)),
    ];
    node(name, "Sum", &[input, "last_axis"], attrs)
}

/// The signatures of an encoded SavedModel with the tag `serve`, by name.
pub fn signatures(encoded: &[u8]) -> Option<BTreeMap<String, SignatureDef>> {
    let model = SavedModel::decode(encoded).ok()?;
    let serves = |graph: &MetaGraphDef| {
        graph.meta_info_def.as_ref().is_some_and(|info| info.tags == ["serve"])
    };
    let graph = model.meta_graphs.into_iter().find(serves)?;
    Some(graph.signature_def.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_of_a_node_is_a_node_and_every_port_too() {
        let linear = Linear { user: vec![1.0, 2.0], treatment: vec![0.5; 3], bias: 1.0 };
        for model in [affine(0.5, 2.0), linear.model(), linear.model_without_variables()] {
            let signatures = signatures(&model.encode()).expect("decodes");
            let graph = &model.saved_model.meta_graphs[0].graph_def;
            let nodes = &graph.as_ref().expect("a graph").node;
            let known = |name: &str| nodes.iter().any(|node| node.name == name);
            assert!(nodes.iter().flat_map(|node| &node.input).all(|input| known(input)));
            let signature = &signatures["serving_default"];
            assert!(
                signature.inputs.keys().chain(signature.outputs.keys()).all(|name| known(name))
            );
        }
    }

    #[test]
    fn a_package_directory_mirrors_data() {
        let dir = tempfile::tempdir().expect("a directory");
        package_dir(dir.path(), &affine(0.5, 2.0)).expect("written");
        let model = fs::read(dir.path().join(MODEL_DIR).join("saved_model.pb")).expect("a model");
        assert!(signatures(&model).is_some());
        let metadata = fs::read(dir.path().join("metadata.json")).expect("metadata");
        let metadata: Json = serde_json::from_slice(&metadata).expect("JSON");
        assert_eq!(metadata["inputs"][0]["tensor"], "x");
    }
}
