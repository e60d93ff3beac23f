//! Memory comes back when a model is unloaded.

use std::{env, fs, process::Command};

use outrigger_proto::tensorflow::{
    DataType, TensorProto,
    attr_value::Value,
    serving::{ModelConfig, model_version_status::State},
};
use outrigger_testkit::saved_model::{Model, node, saved_model};

use crate::{
    harness::{Local, request},
    models::tensor,
};

const ALLOCATOR: &str = "TF_ONEDNN_USE_SYSTEM_ALLOCATOR";
const MIB: usize = 1 << 20;
/// Rows and columns of the weights, which take 64 MiB.
const WIDTH: usize = 4096;

/// `y = x · w`, with equal weights.
fn heavy() -> Model {
    let size = WIDTH as i64;
    let weights = vec![0x3c; WIDTH * WIDTH * size_of::<f32>()];
    let weights = TensorProto { tensor_content: weights.into(), ..tensor(1, &[size, size]) };
    let float = || Value::Type(DataType::DtFloat.into());
    let nodes = vec![
        node("x", "Placeholder", &[], [("dtype", float())]),
        node("w", "Const", &[], [("dtype", float()), ("value", Value::Tensor(weights))]),
        node("y", "MatMul", &["x", "w"], [("T", float())]),
    ];
    let float = DataType::DtFloat;
    let saved_model =
        saved_model(nodes, &[("x", float, &[-1, size])], &[("y", float, &[-1, size])]);
    Model { saved_model, metadata: Default::default() }
}

/// Resident memory of this process that is not backed by a file.
fn anonymous() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.expect("RssAnon is a number of kB") * 1024
}

/// The variable must be set before TensorFlow is opened, and the memory of other tests
/// must not count. So the test runs itself again, alone in a process.
#[test]
fn memory_comes_back_when_models_are_unloaded() {
    if env::var_os(ALLOCATOR).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(load_and_unload());
    }
    let mut alone = Command::new(env::current_exe().unwrap());
    alone.args(["--exact", "memory::memory_comes_back_when_models_are_unloaded"]);
    let output = alone.env(ALLOCATOR, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

async fn load_and_unload() {
    let local = Local::start().await;
    local.write("heavy", 1, &heavy());
    let before = anonymous();
    let names = ["a", "b", "c", "d"];
    let model =
        |name: &&str| ModelConfig { name: (*name).to_owned(), ..local.model("heavy", &[1]) };
    local.reload(names.iter().map(model).collect()).await.expect("it works");
    for name in names {
        let x = TensorProto { float_val: vec![1.0], ..tensor(1, &[4, WIDTH as i64]) };
        local.predict(request(name, [("x", x)])).await.expect("it works");
    }
    let loaded = anonymous().saturating_sub(before) / MIB;
    local.reload(vec![]).await.expect("it works");
    for name in names {
        local.reaches(name, 1, State::End).await;
    }
    let kept = anonymous().saturating_sub(before) / MIB;
    assert!(loaded >= 256, "{loaded} MiB while four models are loaded");
    // TensorFlow's threads and pools keep some memory, as does the last model.
    assert!(kept <= 128, "{kept} MiB of {loaded} are kept");
}
